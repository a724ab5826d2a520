/** The settings beside the text. Which there are is up to the chosen model: `capabilities` in `GET /v1/models`. */

import { element, make } from "./dom.js";
import { extraValues, showExtra } from "./extra.js";
import { offerUpload } from "./voices.js";

const GROUPS = { builtin: "Built in", precomputed: "Prepared", uploaded: "Uploaded" };
const STATUS = { loading: "is loading", no_workers: "has no workers now", draining: "is shutting down" };
const TEXT = "speechmill.text"; // kept over a reload of this tab
const text = (id) => element(id).value.trim();

export class Form {
  #models = [];
  #voices = [];

  constructor() {
    element("model").addEventListener("change", () => this.#showModel());
    element("text").value = sessionStorage.getItem(TEXT) ?? "";
    element("text").addEventListener("input", () => {
      this.#showText();
      sessionStorage.setItem(TEXT, element("text").value);
    });
    element("speed").addEventListener("input", showSpeed);
  }

  /** The chosen one; undefined while there is none. */
  get model() {
    return this.#models.find((model) => model.id === element("model").value);
  }

  set models(models) {
    const before = this.model?.id;
    this.#models = models;
    element("model").replaceChildren(...models.map((model) => new Option(labelOf(model), model.id)));
    if (this.#models.some(({ id }) => id === before)) element("model").value = before;
    if (this.model?.id === before) this.#showStatus();
    else this.#showModel();
  }

  set voices(voices) {
    this.#voices = voices;
    this.#showVoices();
  }

  /** Choose a voice by name, if the model can speak with it; whether it can. */
  chooseVoice(name) {
    const found = [...element("voice").options].some((option) => option.value === name);
    if (found) element("voice").value = name;
    return found;
  }

  /** What to ask for, as `speech.js` takes it. A seed is always part of it, so that it can be asked for again. */
  order() {
    const can = this.model?.capabilities ?? {};
    const set = {
      voice: can.voice_kinds?.length && text("voice"),
      language: can.language && text("language"),
      speed: can.speed && Number(text("speed")),
      instructions: can.instructions && text("instructions"),
      ref_text: can.ref_text !== "none" && text("transcript"),
      duration_seconds: can.duration !== "none" && Number(text("duration")),
    };
    const extra = extraValues(element("extra"));
    const fields = {
      model: this.model?.id,
      input: element("text").value,
      ...Object.fromEntries(Object.entries(set).filter(([, value]) => value)),
      ...(Object.keys(extra).length && { extra_params: extra }),
      seed: text("seed") ? Number(text("seed")) : crypto.getRandomValues(new Uint32Array(1))[0],
    };
    return { fields, recording: can.ref_audio === "none" ? undefined : element("reference").files[0] };
  }

  #showModel() {
    const can = this.model?.capabilities ?? {};
    const shown = {
      voice: can.voice_kinds?.length > 0,
      language: can.language,
      speed: can.speed,
      instructions: can.instructions,
      reference: can.ref_audio !== "none",
      transcript: can.ref_audio !== "none" && can.ref_text !== "none",
      duration: can.duration !== "none",
    };
    for (const [name, isShown] of Object.entries(shown)) element(`field-${name}`).hidden = !isShown;
    if (can.speed) [element("speed").min, element("speed").max] = can.speed_range;
    const languages = (can.languages ?? []).map((name) => new Option(name));
    element("language").replaceChildren(new Option("Auto", ""), ...languages);
    fill("format", can.formats ?? []);
    showExtra(element("extra"), can.extra_params ?? {});
    showSpeed();
    this.#showStatus();
    this.#showVoices();
    this.#showText();
    offerUpload(this.model, this.#models);
  }

  #showStatus() {
    const { id, status, description } = this.model ?? {};
    element("model-hint").textContent = STATUS[status] ? `${id} ${STATUS[status]}.` : (description ?? "");
  }

  #showVoices() {
    const before = text("voice");
    const { id, alias_of: original, capabilities } = this.model ?? {};
    const usable = this.#voices.filter((voice) => voice.models.includes(original ?? id));
    const standard = capabilities?.default_voice;
    const optionOf = ({ name }) => (name === standard ? new Option(`${name} (default)`, "") : new Option(name));
    const isListed = usable.some(({ name }) => name === standard);
    element("voice").replaceChildren(...(isListed ? [] : [new Option(standard ? "Default" : "None", "")]));
    for (const [source, label] of Object.entries(GROUPS)) {
      const options = usable.filter((voice) => voice.source === source).map(optionOf);
      if (options.length) element("voice").append(make("optgroup", { label }, ...options));
    }
    if (!this.chooseVoice(before)) this.chooseVoice("");
  }

  /** How long the text is; what cannot be spoken cannot be asked for. */
  #showText() {
    const most = this.model?.capabilities.max_input_chars ?? 0;
    const count = [...text("text")].length;
    element("count").textContent = this.model ? told(count, most) : "";
    element("count").classList.toggle("over", count > most);
    for (const id of ["speak", "download"]) element(id).disabled = !count || count > most;
  }
}

function told(count, most) {
  const [length, limit, excess] = [count, most, count - most].map((number) => number.toLocaleString());
  if (!count) return `Type a text first: up to ${limit} characters.`;
  return `${length} of ${limit} characters${count > most ? `: shorten the text by ${excess} to have it spoken` : ""}`;
}

function labelOf({ id, status }) {
  return status === "ready" ? id : `${id} (${status.replace("_", " ")})`;
}

function showSpeed() {
  element("speed-shown").textContent = `${Number(element("speed").value).toFixed(2)}×`;
}

function fill(id, values) {
  const before = element(id).value;
  element(id).replaceChildren(...values.map((value) => new Option(value, value, false, value === before)));
}
