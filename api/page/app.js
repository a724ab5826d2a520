/** The page: what the buttons and keys do, and what is told of a speech while it goes on. */

import { callJson, Failure, isTurnedAway } from "./api.js";
import { Deck } from "./deck.js";
import { element } from "./dom.js";
import { Form } from "./form.js";
import { askForKey, currentKey } from "./key.js";
import { setUpQueue } from "./queue.js";
import { save } from "./save.js";
import { listen, wholeFile } from "./speech.js";
import { isShown } from "./view.js";
import { listVoices, setUpVoices, showVoices, tell } from "./voices.js";
import { showFailure } from "./words.js";

const REFRESH_MS = 5000;
const form = new Form();
const deck = new Deck(element("tape"), { onMove: follow, onPlaying: showStop });
let spoken = null; // the last order; its seed makes the same audio again
let running = null; // AbortController of what is being received
let last = Promise.resolve(); // one thing at a time

// ---- Speaking and downloading

async function speak(signal) {
  const began = performance.now();
  const rate = form.model?.capabilities.native_sample_rate;
  deck.begin(rate);
  spoken = form.order();
  clearFigures();
  const { samples } = await deck.open(listen(spoken, rate, signal));
  figure("first", performance.now() - began, (ms) => `${Math.round(ms)} ms`);
  figure("used-seed", spoken.fields.seed, String);
  say("Speaking");
  try {
    for await (const piece of samples) {
      deck.add(piece);
      figure("received", deck.received, seconds);
    }
  } finally {
    deck.end();
  }
  const took = (performance.now() - began) / 1000;
  say(`${seconds(deck.received)} of speech, made in ${took.toFixed(1)} s`);
}

async function download(signal) {
  const order = form.order();
  if (!element("seed").value && spoken && isSame(order, spoken)) order.fields.seed = spoken.fields.seed;
  const { blob, name } = await wholeFile(order, element("format").value, signal);
  save(blob, name);
  say(`${name} is saved.`);
}

/** But for the seed. */
function isSame(one, other) {
  const [its, others] = [one, other].map(({ fields }) => JSON.stringify({ ...fields, seed: 0 }));
  return its === others && one.recording === other.recording;
}

/** Do this in the place of what is being done. */
function begin(words, work) {
  stop();
  const own = (running = new AbortController());
  last = last.then(() => run(own, words, work));
}

async function run(own, words, work) {
  hideError();
  element("stop").disabled = false;
  say(words);
  try {
    await work(own.signal);
  } catch (error) {
    if (error.name === "AbortError") say("Stopped");
    else showError(error);
  }
  if (running === own) running = null;
  showStop();
}

/** Cancels: the server ends the job when the connection goes. What was received can still be heard. */
function stop() {
  running?.abort();
  if (deck.isPlaying) deck.pause();
}

function follow({ position, underruns }) {
  figure("played", position, seconds);
  figure("gaps", underruns, String);
}

function showStop() {
  element("stop").disabled = !running && !deck.isPlaying;
}

// ---- What the user is told

function say(words) {
  element("status").textContent = words;
}

function showError(error) {
  if (!(error instanceof Failure)) console.error(error);
  say("");
  showFailure(element("error"), error);
}

function hideError() {
  element("error").hidden = true;
}

function figure(id, value, shown) {
  element(id).value = value;
  element(id).textContent = shown(value);
}

function clearFigures() {
  for (const data of document.querySelectorAll(".figures data")) figure(data.id, "", () => "–");
}

const seconds = (frames) => deck.seconds(frames);

// ---- Models and voices

async function load() {
  try {
    await Promise.all([loadModels(), loadVoices(), checkKey()]);
  } catch (error) {
    showError(error);
  }
}

async function loadModels() {
  form.models = (await callJson("v1/models")).data;
}

async function loadVoices() {
  const voices = await listVoices();
  form.voices = voices;
  showVoices(voices);
}

async function checkKey() {
  const isNeeded = await isTurnedAway();
  element("key-note").hidden = !isNeeded;
  element("key-note").classList.toggle("error", isNeeded && Boolean(currentKey()));
  element("key-state").textContent = currentKey()
    ? "This server does not know your API key."
    : "This server asks for an API key before it speaks.";
}

async function voiceChanged(name) {
  await loadVoices();
  if (!name) return;
  const isChosen = form.chooseVoice(name);
  tell(isChosen ? `${name} is saved and chosen.` : `${name} is saved. The chosen model cannot speak with it.`);
}

// ---- Wiring

const speakNow = () => begin("Waiting for the first audio…", speak);
for (const id of ["text", "settings"]) element(id).addEventListener("input", hideError);
element("speak").addEventListener("click", speakNow);
element("stop").addEventListener("click", stop);
element("download").addEventListener("click", () => begin("Making the file…", download));
element("give-key").addEventListener("click", () => askForKey(currentKey() ? "invalid_api_key" : "missing_api_key"));
document.addEventListener("keydown", (event) => {
  if (element("key-dialog").open || event.repeat || isShown("jobs")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element("speak").click();
  if (event.key === "Escape") stop();
});
addEventListener("keychange", load);
setUpVoices(voiceChanged);
setUpQueue(form);
setInterval(() => form.model && form.model.status !== "ready" && loadModels().catch(showError), REFRESH_MS);
load();
