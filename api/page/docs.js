/** The API's description, from `GET /openapi.json`. */

import { callJson } from "./api.js";
import { copies } from "./copy.js";
import { curlOf } from "./curl.js";
import { element, make } from "./dom.js";
import { prose, spans } from "./markdown.js";
import { showModels } from "./models.js";
import { describe, fieldsOf } from "./schema.js";
import { table } from "./table.js";
import { showFailure } from "./words.js";

const COLUMNS = ["Name", "Type", "Meaning", "Example"];
const wide = matchMedia("(min-width: 52rem)");
const idOf = (method, path) => `${method}${path.replace(/[^A-Za-z0-9]+/g, "-")}`;

async function showRoutes() {
  const root = await callJson("openapi.json");
  element("title").textContent = `${root.info.title} API ${root.info.version}`;
  element("about").replaceChildren(...prose(root.info.description ?? ""));
  for (const [tag, routes] of Object.entries(grouped(root.paths))) {
    const heading = make("h2", {}, tag[0].toUpperCase() + tag.slice(1));
    element("contents").append(heading.cloneNode(true), ...routes.map(link));
    element("routes").append(make("section", {}, heading, ...routes.map((route) => section(route, root))));
  }
  const { Error: error } = root.components.schemas;
  element("errors").replaceChildren(fieldTable(fieldsOf(error, root)), ...prose(error.description ?? ""));
  openTarget();
}

function grouped(paths) {
  const groups = {};
  for (const [path, operations] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      (groups[operation.tags?.[0] ?? "other"] ??= []).push({ method, path, operation });
    }
  }
  return groups;
}

function link({ method, path, operation }) {
  return make("a", { href: `docs#${idOf(method, path)}` }, operation.summary ?? path);
}

function section({ method, path, operation }, root) {
  const heading = make(
    "summary",
    {},
    make("span", { className: "method" }, isSocket(operation) ? "ws" : method),
    make("span", { className: "path" }, path),
    make("span", { className: "hint" }, operation.summary ?? ""),
  );
  return make(
    "details",
    { className: "route", id: idOf(method, path), data: { method, path } },
    heading,
    ...prose(operation.description ?? ""),
    ...command(method, path, operation, root),
    ...parameterTable(operation, root),
    ...bodyTables(operation, root),
    ...answers(operation, root),
  );
}

/** OpenAPI has no WebSockets; one stands there as the request that opens it. */
function isSocket({ responses }) {
  return "101" in responses;
}

function parameterTable({ parameters = [] }, root) {
  const rows = parameters.map(({ name, in: place, required, description, schema }) => ({
    ...describe(schema, root),
    name: `${name} (${place})`,
    isRequired: required,
    ...(description && { description }),
  }));
  return rows.length ? [make("h3", {}, "Parameters"), fieldTable(rows)] : [];
}

function bodyTables({ requestBody }, root) {
  return Object.entries(requestBody?.content ?? {}).flatMap(([type, { schema }]) => {
    const rows = fieldsOf(schema, root);
    return [make("h3", {}, "Body, ", make("code", {}, type)), ...(rows.length ? [fieldTable(rows)] : [])];
  });
}

/** Errors are the same everywhere and have a section of their own. */
function answers({ responses }, root) {
  const good = Object.entries(responses).filter(([status]) => status.startsWith("2"));
  return good.flatMap(([status, { content = {}, headers = {} }]) => {
    const types = Object.keys(content).flatMap((type) => [" ", make("code", {}, type)]);
    const rows = Object.values(content).flatMap(({ schema }) => (schema ? fieldsOf(schema, root) : []));
    const told = Object.entries(headers).map(([name, header]) => ({
      ...describe(header.schema, root),
      name,
      description: header.description,
    }));
    return [
      make("h3", {}, `Answer ${status}`, ...types),
      ...(rows.length ? [fieldTable(rows)] : []),
      ...(told.length ? [make("h3", {}, `Headers of answer ${status}`), fieldTable(told)] : []),
    ];
  });
}

function fieldTable(fields) {
  const rows = fields.map((field) => [
    [make("code", {}, field.name), ...(field.isRequired ? [" required"] : [])],
    [[field.type, field.bounds].filter(Boolean).join("; "), ...fallback(field.default)],
    spans(field.description),
    json(field.example),
  ]);
  return table(COLUMNS, rows);
}

function command(method, path, operation, root) {
  if (isSocket(operation)) return [];
  const text = curlOf(method, path, operation, root);
  const copy = make("button", { type: "button", className: "quiet" }, "Copy");
  copies(copy, () => text);
  return [make("div", { className: "curl" }, make("pre", {}, text), copy)];
}

function fallback(value) {
  return value === undefined ? [] : ["; default ", ...json(value)];
}

function json(value) {
  return value === undefined ? [] : [make("code", {}, JSON.stringify(value))];
}

function openTarget() {
  const target = location.hash && element(location.hash.slice(1));
  if (!target) return;
  target.open = true;
  target.scrollIntoView();
}

async function load() {
  try {
    await Promise.all([showRoutes(), showModels()]);
  } catch (error) {
    showFailure(element("error"), error);
  }
}

/** Beside the text where there is room for both, else folded above it. */
function foldContents() {
  element("contents").open = wide.matches;
}

addEventListener("hashchange", openTarget);
wide.addEventListener("change", foldContents);
element("contents").addEventListener("click", ({ target }) => target.matches("a") && foldContents());
foldContents();
load();
