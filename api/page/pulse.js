/** Does something every few seconds, but only while somebody looks and there is something to wait for. */

import { Failure } from "./api.js";

const PERIOD_MS = 3000;
const REFUSED = ["missing_api_key", "invalid_api_key", "permission_denied"]; // it would be the same again

export class Pulse {
  #work;
  #isNeeded;
  #tell;
  #timer = 0;
  #isBusy = false;
  #isDue = false;

  /**
   * `work` is done while `isNeeded()` answers "seen" or "live", and again and again while it answers "live".
   * `tell(failure)` hears of each end: null, or the Failure.
   */
  constructor(work, isNeeded, tell) {
    this.#work = work;
    this.#isNeeded = isNeeded;
    this.#tell = tell;
    document.addEventListener("visibilitychange", () => this.beat());
  }

  /** Now. Answers when it is done; one that comes while another is at it, once more behind that one. */
  async beat() {
    clearTimeout(this.#timer);
    if (document.hidden || !this.#isNeeded()) return;
    this.#isDue = true;
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      while (this.#isDue) {
        this.#isDue = false;
        this.#tell(await this.#attempt());
      }
    } finally {
      this.#isBusy = false;
    }
  }

  async #attempt() {
    const failure = await this.#work().then(() => null, thrown);
    clearTimeout(this.#timer);
    const isWorth = failure ? !REFUSED.includes(failure.code) : this.#isNeeded() === "live";
    if (isWorth) this.#timer = setTimeout(() => this.beat(), PERIOD_MS);
    return failure;
  }
}

function thrown(error) {
  if (!(error instanceof Failure)) throw error;
  return error;
}
