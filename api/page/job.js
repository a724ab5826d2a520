/** The opened job: what was asked for, how far it is, its sound, and what can be done with it. */

import { call, callJson, Failure, posting } from "./api.js";
import { copies } from "./copy.js";
import { curlOfJob } from "./curl.js";
import { element, make } from "./dom.js";
import { events } from "./events.js";
import { fact, facts } from "./facts.js";
import { Hearing } from "./hearing.js";
import { meaningOf } from "./meanings.js";
import { saveFrom } from "./save.js";
import { badge, hasEnded, progress } from "./shown.js";
import { here } from "./sound.js";
import { go } from "./view.js";
import { adviceOn, showFailure } from "./words.js";

const PATH = "v1/audio/jobs";
const AGAIN_MS = 3000;
const SUBTITLES = ["srt", "vtt", "json"];
const RETRYABLE = ["failed", "cancelled", "expired"];

export class JobPanel {
  #hearing = new Hearing((job) => this.#rateOf(job), (error) => this.#tell(error));
  #id = "";
  #job = null;
  #request = null;
  #models = [];
  #following = new AbortController();
  #shown = "";
  #on;

  /** All are told: `onNews(job)` of the opened job, `onChange(job)` that was made here, `onGone(id)` by deletion. */
  constructor({ onNews, onChange, onGone }) {
    this.#on = { onNews, onChange, onGone };
    const buttons = {
      "job-cancel": () => this.#change("cancel"),
      "job-retry": () => this.#change("retry"),
      "job-retry-seed": () => this.#change("retry", { new_seed: true }),
      "job-delete": () => this.#delete(),
      "job-download": () => saveFrom(here(`${this.#job.links.audio}?redirect=false`), this.#id),
    };
    for (const [id, work] of Object.entries(buttons)) element(id).addEventListener("click", () => this.#attempt(work));
    for (const format of SUBTITLES) {
      const path = () => `${PATH}/${this.#id}/subtitles?format=${format}`;
      const work = () => saveFrom(path(), `${this.#id}.${format}`);
      element(`job-${format}`).addEventListener("click", () => this.#attempt(work));
    }
    element("job-close").addEventListener("click", () => go({ job: "" }));
    copies(element("job-copy-id"), () => this.#id);
    copies(element("job-copy-curl"), () => curlOfJob(PATH, this.#request));
  }

  /** From `GET /v1/models`: what rate a stream will have. */
  set models(models) {
    this.#models = models;
  }

  /** Show the job with this id; "" for none. */
  async open(id) {
    if (id === this.#id) return;
    this.#following.abort();
    this.#hearing.clear();
    this.#id = id;
    this.#job = this.#request = null;
    this.#shown = "";
    element("job").hidden = !id;
    if (!id) return;
    this.#clear();
    element("job-title").focus();
    await this.#attempt(() => this.#load());
  }

  /** What the list has heard of the opened job. */
  hear(job) {
    if (job.id === this.#id && this.#job && job.version >= this.#job.version) this.#show(job);
  }

  async #load() {
    const id = this.#id;
    const { request, ...job } = await callJson(`${PATH}/${encodeURIComponent(id)}?include=request`);
    if (id !== this.#id) return;
    this.#request = request;
    this.#showRequest();
    this.#show(job);
    this.#follow();
  }

  /** Up to the job's end, over connections that are cut. */
  async #follow() {
    this.#following.abort();
    const { signal } = (this.#following = new AbortController());
    while (!signal.aborted && !hasEnded(this.#job)) {
      try {
        for await (const job of events(here(`${this.#job.links.self}/events`), signal)) this.#hearEvent(job);
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Failure)) throw error;
        if (error.code) return this.#tell(error);
        element("job-lost").hidden = false;
      }
      if (!signal.aborted && !hasEnded(this.#job)) await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  #hearEvent(job) {
    element("job-lost").hidden = true;
    this.#show(job);
    this.#on.onNews(job);
  }

  // ---- What is done with it

  async #change(verb, body = {}) {
    const job = await callJson(`${PATH}/${this.#id}/${verb}`, posting(body));
    this.#on.onChange(job);
    if (job.id !== this.#id) return;
    if (verb === "retry") this.#hearing.clear();
    this.#show(job);
    this.#follow();
  }

  async #delete() {
    const [id, force] = [this.#id, hasEnded(this.#job) ? "" : "?force=true"];
    if (!confirm(force ? "Cancel this job and delete it?" : "Delete this job and its audio?")) return;
    this.#following.abort();
    await call(`${PATH}/${id}${force}`, { method: "DELETE" });
    this.#on.onGone(id);
  }

  async #attempt(work) {
    element("job-error").hidden = true;
    try {
      await work();
    } catch (error) {
      this.#tell(error);
    }
  }

  #tell(error) {
    if (!(error instanceof Failure)) throw error;
    showFailure(element("job-error"), error);
  }

  // ---- How it is shown

  #clear() {
    element("job-title").textContent = "Job";
    for (const id of ["job-state", "job-facts", "job-progress", "job-text"]) element(id).replaceChildren();
    for (const id of ["job-fault", "job-lost", "job-body", "job-error"]) element(id).hidden = true;
    element("job-id").textContent = this.#id;
  }

  #showRequest() {
    const { input, ...others } = this.#request ?? {};
    element("job-text").textContent = input ?? "The text is not kept any more.";
    const settings = Object.entries(others).filter(([, value]) => value !== null);
    const written = (value) => (typeof value === "string" ? value : JSON.stringify(value));
    element("job-settings").replaceChildren(...settings.map(([name, value]) => fact(name, written(value))));
    element("job-settings-box").hidden = !settings.length;
    element("job-copy-curl").disabled = !this.#request;
  }

  #show(job) {
    this.#job = job;
    const shown = JSON.stringify({ ...job, result: job.result && { ...job.result, url: 0, url_expires_at: 0 } });
    if (shown === this.#shown) return;
    this.#shown = shown;
    element("job-body").hidden = false;
    element("job-title").textContent = job.custom_id ?? "Job";
    element("job-state").replaceChildren(badge(job.status), ...place(job));
    element("job-progress").replaceChildren(...progress(job.progress));
    element("job-facts").replaceChildren(...facts(job));
    element("job-cancel").disabled = hasEnded(job) || job.status === "cancelling";
    for (const id of ["job-retry", "job-retry-seed"]) element(id).disabled = !RETRYABLE.includes(job.status);
    element("job-download").disabled = !job.result;
    for (const format of SUBTITLES) element(`job-${format}`).disabled = !job.result?.word_timestamps;
    this.#hearing.job = job;
    this.#showFault(job);
  }

  /** What its sound will have; a player is made before that is known for sure. */
  #rateOf({ model, result }) {
    const { capabilities } = this.#models.find(({ id }) => id === model) ?? {};
    return result?.sample_rate ?? this.#request?.sample_rate ?? capabilities?.native_sample_rate;
  }

  async #showFault({ id, error }) {
    element("job-fault").hidden = !error;
    if (!error) return;
    element("job-fault-code").textContent = error.code;
    element("job-fault-message").textContent = error.message;
    element("job-fault-advice").textContent = adviceOn(error);
    const meaning = await meaningOf(error.code).catch(() => "");
    if (id === this.#id) element("job-fault-meaning").textContent = meaning || "The job has failed.";
  }
}

/** Where it stands in the queue. */
function place({ queue }) {
  if (!queue) return [];
  return [make("span", { className: "hint" }, `number ${queue.position.toLocaleString()} in the queue`)];
}
