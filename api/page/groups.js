/** The group that the table is filtered by: its counts, and what can be done with all of it. */

import { callJson, Failure, posting } from "./api.js";
import { countsBar } from "./bar.js";
import { element } from "./dom.js";
import { saveFrom } from "./save.js";
import { badge } from "./shown.js";
import { showFailure } from "./words.js";

const PATH = "v1/audio/job_groups";
const RETRYABLE = ["failed", "cancelled", "expired"];
const OVER = ["completed", "cancelled"];

export class GroupPanel {
  #id = "";
  #group = null;

  /** `onChange()` runs when jobs of the group were changed from here. */
  constructor(onChange) {
    const buttons = {
      "group-cancel": () => this.#post("cancel", {}, onChange),
      "group-archive": () => saveFrom(`${PATH}/${this.#id}/archive`, `${this.#id}.zip`),
    };
    for (const state of RETRYABLE) {
      buttons[`group-retry-${state}`] = () => this.#post("retry", { states: [state] }, onChange);
    }
    for (const [id, work] of Object.entries(buttons)) element(id).addEventListener("click", () => this.#attempt(work));
  }

  get isLive() {
    return Boolean(this.#group) && !OVER.includes(this.#group.status);
  }

  /** Show the group with this id, "" for none, as it is now. Throws Failure. */
  async refresh(id) {
    if (id !== this.#id) {
      this.#id = id;
      this.#group = null;
      element("group").hidden = true;
      element("group-error").hidden = true;
    }
    if (!id) return;
    const group = await callJson(`${PATH}/${encodeURIComponent(id)}`);
    if (id === this.#id) this.#show(group);
  }

  async #post(verb, body, onChange) {
    this.#show(await callJson(`${PATH}/${this.#id}/${verb}`, posting(body)));
    onChange();
  }

  async #attempt(work) {
    element("group-error").hidden = true;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      showFailure(element("group-error"), error);
    }
  }

  #show(group) {
    this.#group = group;
    const { total, ...counts } = group.counts;
    const words = `${total.toLocaleString()} ${total === 1 ? "job" : "jobs"}`;
    element("group").hidden = false;
    element("group-state").replaceChildren(badge(group.status), ` ${words}`);
    element("group-counts").replaceChildren(...countsBar(counts));
    element("group-cancel").disabled = group.status !== "in_progress";
    element("group-archive").disabled = !counts.succeeded;
    for (const state of RETRYABLE) element(`group-retry-${state}`).disabled = !counts[state];
  }
}
