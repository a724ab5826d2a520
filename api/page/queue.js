/** The playground's text as a job, or as a group of one job for each line. */

import { callJson, Failure, posting } from "./api.js";
import { element } from "./dom.js";
import { go } from "./view.js";
import { showFailure } from "./words.js";

const PATH = "v1/audio/jobs";
const lines = () => element("text").value.split("\n").map((line) => line.trim()).filter(Boolean);

/** Wire the buttons; `form` has the settings. */
export function setUpQueue(form) {
  element("text").addEventListener("input", offer);
  element("queue").addEventListener("click", () => attempt(() => queueOne(form)));
  element("queue-lines").addEventListener("click", () => attempt(() => queueLines(form)));
  offer();
}

function offer() {
  const count = lines().length;
  element("queue").disabled = count < 1;
  element("queue-lines").disabled = count < 2;
  element("queue-lines").textContent = count < 2 ? "Queue each line" : `Queue ${count.toLocaleString()} lines`;
}

async function queueOne(form) {
  const { id } = await callJson(PATH, posting({ request: await requestOf(form) }));
  go({ status: "", model: "", group_id: "", custom_id: "", job: id });
}

async function queueLines(form) {
  const { input, ...defaults } = await requestOf(form);
  const requests = lines().map((line, index) => ({ custom_id: `line-${index + 1}`, request: { input: line } }));
  const { id } = await callJson(PATH, posting({ defaults, requests }));
  go({ status: "", model: "", group_id: id, custom_id: "", job: "" });
}

async function requestOf(form) {
  const { fields, recording } = form.order();
  const own = recording && { ref_audio: await dataUrl(recording) };
  return { ...fields, ...own, response_format: element("format").value };
}

function dataUrl(file) {
  const reader = new FileReader();
  return new Promise((resolve, reject) => {
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Failure("The recording cannot be read."));
    reader.readAsDataURL(file);
  });
}

async function attempt(work) {
  const buttons = [element("queue"), element("queue-lines")];
  element("error").hidden = true;
  for (const button of buttons) button.disabled = true;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    showFailure(element("error"), error);
  } finally {
    offer();
  }
}
