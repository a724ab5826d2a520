/** The panel of the user's own voices: upload, list, delete. */

import { call, callJson, Failure, posting } from "./api.js";
import { element, make } from "./dom.js";
import { showFailure } from "./words.js";

const PATH = "v1/audio/voices";
const MOST = 1000;
const either = new Intl.ListFormat("en", { type: "disjunction" });

/** Every voice that can be named. Throws Failure. */
export async function listVoices() {
  return (await callJson(`${PATH}?limit=${MOST}`)).data;
}

/** Wire the panel. `onChange(name)` runs after an upload with the voice's name, and after a deletion without one. */
export function setUpVoices(onChange) {
  element("sample").addEventListener("change", showSample);
  element("upload").addEventListener("submit", (event) => {
    event.preventDefault();
    attempt(() => upload(onChange));
  });
  element("upload").addEventListener("input", () => (element("voice-error").hidden = true));
  element("voices").addEventListener("click", ({ target }) => {
    const { id, name } = target.dataset;
    if (id && confirm(`Delete the voice ${name}?`)) attempt(() => remove(id, name, onChange));
  });
  setUpDrop(element("drop"));
}

function setUpDrop(drop) {
  for (const [type, isOver] of Object.entries({ dragenter: true, dragover: true, dragleave: false, drop: false })) {
    drop.addEventListener(type, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", isOver);
    });
  }
  drop.addEventListener("drop", ({ dataTransfer }) => {
    element("sample").files = dataTransfer.files;
    showSample();
  });
}

function showSample() {
  const file = element("sample").files[0];
  element("sample-name").textContent = file?.name ?? "Drop a recording here, or choose one";
  if (file && !element("voice-name").value) element("voice-name").value = file.name.replace(/\.[^.]*$/, "");
}

/** Of all voices, list those that were uploaded. */
export function showVoices(voices) {
  const own = voices.filter((voice) => voice.source === "uploaded");
  element("no-voices").hidden = own.length > 0;
  element("voices").replaceChildren(...own.map(item));
}

/** Show the form if the chosen model can speak with what it makes; else say which of the models can. */
export function offerUpload(chosen, models) {
  const takesOwn = (model) => model.capabilities.voice_kinds.includes("uploaded");
  const able = models.filter((model) => !model.alias_of && takesOwn(model)).map(({ id }) => id);
  const isAble = Boolean(chosen) && takesOwn(chosen);
  element("upload").hidden = !isAble;
  element("no-upload").hidden = isAble;
  element("no-upload").textContent = able.length
    ? `${chosen.id} cannot speak with uploaded voices. To use your own, choose ${either.format(able)}.`
    : "No model here can speak with uploaded voices.";
}

/** Say in the panel what became of what the user did. */
export function tell(words) {
  element("voice-status").textContent = words;
}

async function upload(onChange) {
  const sample = element("sample").files[0];
  if (!sample) throw new Failure("Choose a recording first.");
  const name = element("voice-name").value.trim();
  const parts = new FormData();
  parts.append("name", name);
  parts.append("consent", element("consent-text").textContent);
  parts.append("audio_sample", sample);
  parts.append("ref_text", element("voice-text").value.trim());
  tell("Saving…");
  await call(PATH, posting(parts));
  element("upload").reset();
  showSample();
  await onChange(name);
}

async function remove(id, name, onChange) {
  await call(`${PATH}/${encodeURIComponent(id)}`, { method: "DELETE" });
  tell(`${name} is deleted.`);
  await onChange();
}

async function attempt(work) {
  element("voice-error").hidden = true;
  element("save-voice").disabled = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    tell("");
    showFailure(element("voice-error"), error);
  } finally {
    element("save-voice").disabled = false;
  }
}

function item({ id, name, models }) {
  const hint = models.length ? models.join(", ") : "No model here can speak with it.";
  const button = make("button", { type: "button", className: "quiet", data: { id, name } }, "Delete");
  button.ariaLabel = `Delete ${name}`;
  return make("li", {}, make("span", {}, name, make("span", { className: "hint" }, hint)), button);
}
