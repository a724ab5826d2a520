/** The jobs of the list as far as they were loaded, newest first, and kept up to date. */

import { callJson } from "./api.js";
import { hasEnded } from "./shown.js";

const PATH = "v1/audio/jobs";
const PAGE = 20;
const MOST = 100; // of one answer

export class JobList {
  jobs = [];
  hasMore = false;
  /** Whether the jobs are those of the query before. */
  isStale = true;
  #query = "";
  #turn = 0;

  /** From the next refresh on, the jobs that match `query`, a URLSearchParams of `GET /v1/audio/jobs`. */
  ask(query) {
    this.#query = query.toString();
    this.isStale = true;
    this.#turn = 0;
  }

  get isLive() {
    return this.jobs.some((job) => !hasEnded(job));
  }

  /** The next page. Throws Failure. */
  async more() {
    const [query, last] = [this.#query, this.jobs.at(-1)?.id];
    const page = await this.#page(PAGE, last);
    if (this.isStale || query !== this.#query || last !== this.jobs.at(-1)?.id) return;
    this.jobs = [...this.jobs, ...page.data];
    this.hasMore = page.has_more;
  }

  /** News in one request: of the newest jobs, and in turn of further stretches that are at work. Throws Failure. */
  async refresh() {
    const query = this.#query;
    const starts = this.isStale ? [0] : this.#stretches();
    const start = starts[this.#turn++ % starts.length];
    const size = this.isStale ? PAGE : Math.min(Math.max(this.jobs.length - start, PAGE), MOST);
    const page = await this.#page(size, this.jobs[start - 1]?.id).catch((error) => this.#forgive(error));
    if (query === this.#query) this.#merge(start, page);
  }

  /** One job is like this now. */
  update(job) {
    const at = this.jobs.findIndex(({ id }) => id === job.id);
    if (at >= 0 && job.version >= this.jobs[at].version) this.jobs[at] = job;
  }

  remove(id) {
    this.jobs = this.jobs.filter((job) => job.id !== id);
  }

  #stretches() {
    const starts = Array.from({ length: Math.ceil(this.jobs.length / MOST) }, (_, index) => index * MOST);
    const isLive = (start) => this.jobs.slice(start, start + MOST).some((job) => !hasEnded(job));
    return [0, ...starts.slice(1).filter(isLive)];
  }

  /** What stands behind the answer stays as it is; where nothing joins, the list begins anew. */
  #merge(start, { data, has_more: hasMore }) {
    const fresh = new Set(data.map(({ id }) => id));
    const joint = this.jobs.findLastIndex(({ id }) => fresh.has(id));
    const rest = hasMore && joint >= 0 && !this.isStale ? this.jobs.slice(joint + 1) : [];
    this.jobs = [...this.jobs.slice(0, start), ...data, ...rest];
    if (!rest.length) this.hasMore = hasMore;
    this.isStale = false;
  }

  /** The job behind which it was asked has been deleted. */
  #forgive(error) {
    if (error.code !== "invalid_cursor") throw error;
    this.jobs = [];
    return this.#page(PAGE);
  }

  #page(limit, after = "") {
    return callJson(`${PATH}?${this.#query}&limit=${limit}${after && `&after=${after}`}`);
  }
}
