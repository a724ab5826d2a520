/** How many of a group are in which state: one bar, and the same in words. */

import { badge } from "./shown.js";
import { make } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const STATES = ["succeeded", "running", "queued", "failed", "expired", "cancelled", "rejected"];

/** `counts` by state; states that nothing is in are left out. */
export function countsBar(counts) {
  const there = STATES.filter((state) => counts[state]);
  const bar = document.createElementNS(SVG, "svg");
  bar.classList.add("counts-bar");
  bar.setAttribute("aria-hidden", "true");
  let from = 0;
  const whole = there.reduce((sum, state) => sum + counts[state], 0);
  for (const state of there) {
    bar.append(part(state, from / whole, counts[state] / whole));
    from += counts[state];
  }
  const words = there.map((state) => make("li", {}, badge(state), ` ${counts[state].toLocaleString()}`));
  return [bar, make("ul", { className: "counts" }, ...words)];
}

function part(state, from, width) {
  const made = document.createElementNS(SVG, "rect");
  made.dataset.status = state;
  for (const [name, value] of Object.entries({ x: `${100 * from}%`, width: `${100 * width}%`, height: "100%" })) {
    made.setAttribute(name, value);
  }
  return made;
}
