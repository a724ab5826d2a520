/** What each model takes, from `GET /v1/models`: one block for each, with its aliases in it. */

import { callJson } from "./api.js";
import { element, make } from "./dom.js";

const FACTS = {
  Status: ({ status }) => status.replace("_", " "),
  Voices: ({ capabilities: can }) => can.voice_kinds.join(", ") || "–",
  "Default voice": ({ capabilities: can }) => can.default_voice ?? "–",
  "Reference recording": ({ capabilities: can }) => need(can.ref_audio),
  "Words of the recording": ({ capabilities: can }) => need(can.ref_text),
  Instructions: ({ capabilities: can }) => yes(can.instructions),
  Languages: ({ capabilities: { languages } }) => (languages.length > 4 ? languages.length : languages.join(", ")),
  "Takes a language": ({ capabilities: can }) => yes(can.language),
  Speed: ({ capabilities: can }) => (can.speed ? can.speed_range.join(" to ") : "–"),
  Duration: ({ capabilities: can }) => need(can.duration),
  "Word times": ({ capabilities: can }) => yes(can.word_timestamps),
  "Sample rate": ({ capabilities: can }) => `${can.native_sample_rate} Hz`,
  "Extra parameters": ({ capabilities: can }) => listed(Object.keys(can.extra_params)),
};

const need = (word) => (word === "none" ? "–" : word.replaceAll("_", " "));
const yes = (does) => (does ? "yes" : "–");
const listed = (names) => (names.length ? names.flatMap((name) => [make("code", {}, name), " "]) : "–");

/** Throws Failure. */
export async function showModels() {
  const { data } = await callJson("v1/models");
  const models = data.filter((model) => !model.alias_of);
  const namesOf = ({ id }) => data.filter((model) => model.alias_of === id).map((alias) => alias.id);
  element("models").append(...models.map((model) => section(model, namesOf(model))));
}

function section(model, names) {
  const facts = Object.entries(FACTS).map(([name, tell]) => fact(name, tell(model)));
  return make(
    "details",
    { className: "route" },
    make(
      "summary",
      {},
      make("span", { className: "path" }, model.id),
      make("span", { className: "hint" }, model.description),
    ),
    make("dl", { className: "facts" }, fact("Other names", listed(names)), ...facts),
  );
}

function fact(name, told) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, ...[told].flat()));
}
