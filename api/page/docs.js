/** The API's description, from `GET /openapi.json`, and what each model takes, from `GET /v1/models`. */

import { callJson } from "./api.js";
import { curlOf } from "./curl.js";
import { element, make } from "./dom.js";
import { describe, fieldsOf } from "./schema.js";

const COLUMNS = ["Name", "Takes", "Meaning", "Example"];
const MODEL_COLUMNS = {
  Model: ({ id, description }) => [make("code", {}, id), make("span", { className: "hint" }, description)],
  Status: ({ status }) => status.replace("_", " "),
  Voices: ({ capabilities: can }) => can.voice_kinds.join(", ") || "–",
  Recording: ({ capabilities: can }) => need(can.ref_audio),
  Transcript: ({ capabilities: can }) => need(can.ref_text.replaceAll("_", " ")),
  Instructions: ({ capabilities: can }) => yes(can.instructions),
  Languages: ({ capabilities: { languages } }) => (languages.length > 4 ? `${languages.length}` : languages.join(", ")),
  "Takes language": ({ capabilities: can }) => yes(can.language),
  Speed: ({ capabilities: can }) => (can.speed ? can.speed_range.join(" to ") : "–"),
  Duration: ({ capabilities: can }) => need(can.duration.replaceAll("_", " ")),
  "Word times": ({ capabilities: can }) => yes(can.word_timestamps),
  "Sample rate": ({ capabilities: can }) => `${can.native_sample_rate} Hz`,
  "Extra parameters": ({ capabilities: can }) => listed(Object.keys(can.extra_params)),
};

const need = (word) => (word === "none" ? "–" : word);
const yes = (does) => (does ? "yes" : "–");
const listed = (names) => (names.length ? names.flatMap((name) => [make("code", {}, name), " "]) : "–");
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
  element("errors").replaceChildren(fieldTable(fieldsOf(root.components.schemas.Error, root)));
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
    make("span", { className: "method" }, method),
    make("span", { className: "path" }, path),
    make("span", { className: "hint" }, operation.summary ?? ""),
  );
  return make(
    "details",
    { className: "route", id: idOf(method, path), data: { method, path } },
    heading,
    ...prose(operation.description ?? ""),
    command(curlOf(new URL(".", location.href).href.replace(/\/$/, ""), method, path, operation, root)),
    ...parameterTable(operation, root),
    ...bodyTables(operation, root),
    ...answers(operation, root),
  );
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
  return good.flatMap(([status, { content = {} }]) => {
    const types = Object.keys(content).flatMap((type) => [" ", make("code", {}, type)]);
    const rows = Object.values(content).flatMap(({ schema }) => (schema ? fieldsOf(schema, root) : []));
    return [make("h3", {}, `Answer ${status}`, ...types), ...(rows.length ? [fieldTable(rows)] : [])];
  });
}

function fieldTable(fields) {
  const rows = fields.map((field) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, make("code", {}, field.name), ...(field.isRequired ? [" required"] : [])),
      make("td", {}, [field.type, field.bounds].filter(Boolean).join("; "), ...fallback(field.default)),
      make("td", { className: "wide" }, ...spans(field.description)),
      make("td", {}, ...json(field.example)),
    ),
  );
  return make("div", { className: "scroll" }, make("table", {}, head(COLUMNS), make("tbody", {}, ...rows)));
}

function head(names) {
  return make("thead", {}, make("tr", {}, ...names.map((name) => make("th", { scope: "col" }, name))));
}

function command(text) {
  const copy = make("button", { type: "button", className: "quiet", hidden: !navigator.clipboard }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
  });
  return make("div", { className: "curl" }, make("pre", {}, text), copy);
}

async function showModels() {
  const { data } = await callJson("v1/models");
  const cells = (model) => Object.values(MODEL_COLUMNS).map((cell) => make("td", {}, ...[cell(model)].flat()));
  const rows = data.map((model) => make("tr", { data: { model: model.id } }, ...cells(model)));
  element("models").replaceChildren(head(Object.keys(MODEL_COLUMNS)), make("tbody", {}, ...rows));
}

function prose(text) {
  return text.split(/\n\s*\n/).map((paragraph) => make("p", {}, ...spans(paragraph.trim())));
}

/** Text between backticks is code. */
function spans(text) {
  return text.split("`").map((part, index) => (index % 2 ? make("code", {}, part) : part));
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
    element("error").textContent = error.message;
    element("error").hidden = false;
  }
}

addEventListener("hashchange", openTarget);
load();
