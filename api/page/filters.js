/** The form above the table of jobs: what it says stands in the address, and the other way round. */

import { element } from "./dom.js";
import { asked, go } from "./view.js";

const NAMES = ["status", "model", "group_id", "custom_id"];
const DEAD = "dead"; // among the choices of a status, though the API has it apart
const PAUSE_MS = 400; // of somebody who types
let timer = 0;

/** Wire the form. */
export function setUpFilters() {
  element("filters").addEventListener("input", ({ target }) => {
    clearTimeout(timer);
    timer = setTimeout(apply, target.matches("select") ? 0 : PAUSE_MS);
  });
  element("filters").addEventListener("submit", (event) => {
    event.preventDefault();
    apply();
  });
  element("clear-filters").addEventListener("click", () => go(Object.fromEntries(NAMES.map((name) => [name, ""]))));
}

/** Have the form say what the address does. */
export function showFilters() {
  for (const name of NAMES) {
    const [control, value] = [element(`filter-${name}`), asked().get(name) ?? ""];
    if (control.matches("select") && ![...control.options].some((option) => option.value === value)) {
      control.append(new Option(value, value));
    }
    if (control.value.trim() !== value) control.value = value;
  }
  element("clear-filters").disabled = !isFiltered();
}

/** The models that can be chosen. */
export function offerModels(ids) {
  const chosen = element("filter-model").value;
  element("filter-model").replaceChildren(new Option("Every model", ""), ...ids.map((id) => new Option(id, id)));
  element("filter-model").value = chosen;
  showFilters();
}

export function isFiltered() {
  return NAMES.some((name) => asked().get(name));
}

export function isForDead() {
  return asked().get("status") === DEAD;
}

/** The address's filters as `GET /v1/audio/jobs` takes them. */
export function filterQuery() {
  const pairs = NAMES.map((name) => [name, asked().get(name)]).filter(([, value]) => value);
  const isDead = (name) => name === "status" && isForDead();
  return new URLSearchParams(pairs.map(([name, value]) => (isDead(name) ? ["dead", "true"] : [name, value])));
}

function apply() {
  clearTimeout(timer);
  go(Object.fromEntries(NAMES.map((name) => [name, element(`filter-${name}`).value.trim()])), true);
}
