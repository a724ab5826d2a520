/** Where the user is: which view, and what of it is shown. All of that stands in the address, behind the `#`. */

/** Whether this view is the shown one: `speak` or `jobs`. */
export function isShown(view) {
  return document.documentElement.dataset.view === view;
}

/** What the jobs view was asked to show: filters by their names in the API, and the opened `job`. */
export function asked() {
  return new URLSearchParams(isShown("jobs") ? location.hash.split("?")[1] : "");
}

/** The address of the jobs view as it is asked for now, but for these changes; "" takes something out. */
export function jobsPlace(changes = {}) {
  const all = { ...Object.fromEntries(asked()), ...changes };
  const query = new URLSearchParams(Object.entries(all).filter(([, value]) => value)).toString();
  return query ? `#jobs?${query}` : "#jobs";
}

/** Show the jobs view with these changes. `replaces`: Back does not come by here. */
export function go(changes, replaces = false) {
  const there = jobsPlace(changes);
  if (there === location.hash) return;
  if (!replaces) return void (location.hash = there);
  history.replaceState(null, "", there);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function tell() {
  for (const link of document.querySelectorAll("[data-place]")) {
    if (isShown(link.dataset.place)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = isShown("jobs") ? "Jobs – Speechmill" : "Speechmill";
}

addEventListener("hashchange", tell);
tell();
