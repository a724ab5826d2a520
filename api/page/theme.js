// Not a module: it must set the colours before the page is drawn for the first time.
(() => {
  const KEY = "speechmill.theme";
  const NAMES = ["auto", "light", "dark"];
  const root = document.documentElement;
  root.dataset.theme = localStorage.getItem(KEY) ?? "auto";

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      const name = root.dataset.theme;
      button.textContent = button.ariaLabel = `Theme: ${name}`;
      button.title = "Colours: as the system has them (auto), light or dark";
    };
    button.addEventListener("click", () => {
      root.dataset.theme = NAMES[(NAMES.indexOf(root.dataset.theme) + 1) % NAMES.length];
      localStorage.setItem(KEY, root.dataset.theme);
      dispatchEvent(new Event("themechange"));
      show();
    });
    show();
  });
})();
