/** The little Markdown of descriptions: paragraphs, headings, lists, tables, blocks of code, `code` and **strong**. */

import { make } from "./dom.js";
import { table } from "./table.js";

const KINDS = [
  [/^```/, block],
  [/^### /, heading],
  [/^- /, list],
  [/^\|/, rows],
  [/^/, paragraph],
];

/** Elements for a whole text; empty lines separate them. */
export function prose(text) {
  const parts = text.trim().split(/\n\s*\n/).filter(Boolean);
  return parts.map((part) => KINDS.find(([start]) => start.test(part))[1](part));
}

/** What stands within a line. */
export function spans(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).filter(Boolean).map((part) => {
    if (part.startsWith("`")) return make("code", {}, part.slice(1, -1));
    return part.startsWith("**") ? make("strong", {}, part.slice(2, -2)) : part;
  });
}

function paragraph(text) {
  return make("p", {}, ...spans(text));
}

function heading(text) {
  return make("h3", {}, ...spans(text.slice("### ".length)));
}

function list(text) {
  const items = text.slice("- ".length).split(/\n- /);
  return make("ul", {}, ...items.map((item) => make("li", {}, ...spans(item))));
}

function rows(text) {
  const [columns, , ...cells] = text.split("\n").map((line) => line.slice(1, -1).split("|").map((cell) => cell.trim()));
  return table(columns, cells.map((row) => row.map(spans)));
}

function block(text) {
  return make("pre", {}, text.replace(/^```.*\n|\n```$/g, ""));
}
