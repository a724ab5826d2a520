// Not a module: the right view must be chosen before the page is drawn for the first time.
(() => {
  const show = () => {
    document.documentElement.dataset.view = /^#jobs\b/.test(location.hash) ? "jobs" : "speak";
  };
  addEventListener("hashchange", show);
  show();
})();
