/** The sound of the opened job: loaded when Play is pressed, live while the job is at work, else from its file. */

import { Deck } from "./deck.js";
import { element } from "./dom.js";
import { hasEnded } from "./shown.js";
import { liveSound, storedSound } from "./sound.js";

export class Hearing {
  #deck = new Deck(element("job-tape"), {
    onStart: () => this.#listen(),
    onMove: ({ position }) => this.#figures(this.#deck.received, position),
  });
  #rate;
  #tell;
  #job = null;
  #running = new AbortController();
  #isIdle = true;

  /** `rateOf(job)`: Hz, as far as it is known before there is sound. `tell(error)` hears what goes wrong. */
  constructor(rateOf, tell) {
    this.#rate = rateOf;
    this.#tell = tell;
  }

  /** Be silent, and forget what was loaded. */
  clear() {
    this.#running.abort();
    this.#isIdle = true;
    this.#job = null;
    this.#deck.reset();
    this.#say("");
    this.#figures(0, 0);
  }

  /** What Play would play. */
  set job(job) {
    this.#job = job;
    if (this.#isIdle) this.#deck.reset(Boolean(job.result) || !hasEnded(job));
  }

  async #listen() {
    const { signal } = (this.#running = new AbortController());
    this.#isIdle = false;
    try {
      await this.#play(this.#job, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (this.#deck.received) this.#deck.end();
      else this.#giveUp();
      this.#tell(error);
    }
  }

  #giveUp() {
    this.#isIdle = true;
    this.#say("");
    this.job = this.#job;
  }

  async #play(job, signal) {
    const guess = this.#rate(job);
    this.#say("Waiting for the audio…");
    this.#deck.begin(guess);
    const stream = await (job.result ? storedSound : liveSound)(job, signal);
    if (stream.rate !== guess) this.#deck.begin(stream.rate);
    await this.#deck.open(stream);
    for await (const piece of stream.samples) {
      if (signal.aborted) return;
      this.#deck.add(piece);
      this.#figures(this.#deck.received, element("job-played").value);
      this.#say(`${this.#deck.seconds(this.#deck.received)} of speech`);
    }
    this.#deck.end();
  }

  /** In frames, for whoever reads the page by a program. */
  #figures(received, played) {
    element("job-received").value = received;
    element("job-played").value = played;
  }

  #say(words) {
    element("job-sound").textContent = words;
  }
}
