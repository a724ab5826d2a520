/** Tables that can be read on small screens, too: there each cell stands below the last, with its column's name. */

import { make } from "./dom.js";

/** Rows hold one list of children for each column; the first cell names its row. */
export function table(columns, rows) {
  const heads = columns.map((name) => make("th", { scope: "col" }, name));
  const body = rows.map(([name, ...others]) => {
    const cells = others.map((children, index) => make("td", { data: { column: columns[index + 1] } }, ...children));
    return make("tr", {}, make("th", { scope: "row" }, ...name), ...cells);
  });
  const made = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...body));
  return make("div", { className: "scroll" }, made);
}
