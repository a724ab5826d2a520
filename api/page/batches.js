/** The project's last batches: how far each is, its files, and a way to end it. */

import { callJson, Failure, posting } from "./api.js";
import { element, make } from "./dom.js";
import { saveFrom } from "./save.js";
import { badge, moment } from "./shown.js";
import { showFailure } from "./words.js";

const PATH = "v1/batches";
const OVER = ["completed", "failed", "expired", "cancelled"];
const FILES = { output_file_id: "Output", error_file_id: "Errors" };

export class Batches {
  #batches = [];
  #shown = "";

  get isLive() {
    return this.#batches.some(({ status }) => !OVER.includes(status));
  }

  async refresh() {
    const { data } = await callJson(`${PATH}?limit=10`).catch(withoutScope);
    this.#show(data);
  }

  #show(batches) {
    this.#batches = batches;
    const shown = JSON.stringify(batches);
    if (shown === this.#shown) return;
    this.#shown = shown;
    element("no-batches").hidden = batches.length > 0;
    element("batches").replaceChildren(...batches.map((batch) => this.#item(batch)));
  }

  #item(batch) {
    const { id, status, created_at: created, request_counts: counts } = batch;
    const done = counts.completed + counts.failed;
    const words = `${done.toLocaleString()} of ${counts.total.toLocaleString()}`;
    const failed = counts.failed ? ` · ${counts.failed.toLocaleString()} failed` : "";
    return make(
      "li",
      {},
      make("div", { className: "name" }, badge(status), make("span", { className: "id" }, id), moment(created)),
      make(
        "div",
        { className: "progress" },
        make("progress", { max: counts.total || 1, value: done, ariaLabel: `Lines: ${words}` }),
        make("span", { className: "amount" }, words, failed),
      ),
      make("div", { className: "actions" }, ...this.#buttons(batch)),
    );
  }

  #buttons(batch) {
    const files = Object.entries(FILES).filter(([field]) => batch[field]);
    const downloads = files.map(([field, label]) => {
      const path = `v1/files/${batch[field]}/content`;
      return this.#button(label, `${label} of ${batch.id}`, () => saveFrom(path, `${batch[field]}.jsonl`));
    });
    if (OVER.includes(batch.status)) return downloads;
    const cancel = () => callJson(`${PATH}/${batch.id}/cancel`, posting({})).then(() => this.refresh());
    return [...downloads, this.#button("Cancel", `Cancel ${batch.id}`, cancel)];
  }

  #button(words, label, work) {
    const button = make("button", { type: "button", className: "quiet", ariaLabel: label }, words);
    button.addEventListener("click", async () => {
      element("batches-error").hidden = true;
      try {
        await work();
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        showFailure(element("batches-error"), error);
      }
    });
    return button;
  }
}

/** A key for jobs may not be one for batches. */
function withoutScope(error) {
  if (error.code !== "permission_denied") throw error;
  return { data: [] };
}
