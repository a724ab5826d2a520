/** The table of jobs: one row for each, changed in place so that whoever is in it stays there. */

import { make } from "./dom.js";
import { badge, moment, progress, span, took } from "./shown.js";
import { jobsPlace } from "./view.js";

export class Rows {
  #body;
  #rows = new Map();

  constructor(body) {
    this.#body = body;
  }

  /** `opened` is the id of the job that is shown beside the table. */
  show(jobs, opened) {
    const rows = new Map(jobs.map((job) => [job.id, this.#rows.get(job.id) ?? new Row()]));
    for (const [id, row] of this.#rows) if (!rows.has(id)) row.element.remove();
    this.#rows = rows;
    jobs.forEach((job, at) => {
      const { element } = rows.get(job.id);
      if (this.#body.children[at] !== element) this.#body.insertBefore(element, this.#body.children[at] ?? null);
      rows.get(job.id).show(job, job.id === opened);
    });
  }

  /** Where the keyboard was before a job was opened. */
  focus(id) {
    this.#rows.get(id)?.link.focus();
  }
}

class Row {
  link = make("a");
  #id = make("span", { className: "id" });
  #cells = Object.fromEntries(
    ["status", "created", "voice", "priority", "progress", "tries", "took"].map((name) => [
      name,
      make("td", { className: name }),
    ]),
  );
  #shown = "";

  constructor() {
    const { status, ...others } = this.#cells;
    const name = make("th", { scope: "row" }, this.link, this.#id);
    this.element = make("tr", {}, status, name, ...Object.values(others));
    this.element.addEventListener("click", ({ target }) => target.closest("a") || this.link.click());
  }

  show(job, isOpened) {
    this.link.href = jobsPlace({ job: job.id });
    this.element.classList.toggle("opened", isOpened);
    if (isOpened) this.link.setAttribute("aria-current", "true");
    else this.link.removeAttribute("aria-current");
    const seconds = took(job);
    const shown = JSON.stringify([job.version, job.status, job.progress, seconds]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.link.textContent = job.custom_id ?? job.id;
    this.#id.textContent = job.custom_id ? job.id : "";
    this.#fill({
      status: [badge(job.status)],
      created: [moment(job.created_at)],
      voice: [job.model, ...(job.voice ? [make("span", { className: "hint" }, job.voice)] : [])],
      priority: [job.priority],
      progress: progress(job.progress),
      tries: [`${job.attempt} of ${job.max_attempts}`],
      took: [seconds === null ? "–" : span(seconds)],
    });
  }

  #fill(contents) {
    for (const [name, children] of Object.entries(contents)) this.#cells[name].replaceChildren(...children);
  }
}
