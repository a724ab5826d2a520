/** A player to be seen and used: its button, the waveform of what has arrived, and the position in it. */

import { Player } from "./player.js";
import { Waveform } from "./waveform.js";

export class Deck {
  #button;
  #slider;
  #wave;
  #on;
  #player = null;
  #channels = 1;
  #received = 0;
  #position = 0;
  #isComplete = true;
  #isPlaying = false;

  /**
   * `root` holds a `.round` button, a canvas and a slider. All are told: `onMove({position, underruns, finished})`,
   * some twenty times a second; `onPlaying(isPlaying)`; `onStart()`, Play where nothing has been loaded.
   */
  constructor(root, { onMove = () => {}, onPlaying = () => {}, onStart = () => {} } = {}) {
    this.#button = root.querySelector(".round");
    this.#slider = root.querySelector("input");
    this.#wave = new Waveform(root.querySelector("canvas"));
    this.#on = { onMove, onPlaying, onStart };
    this.#button.addEventListener("click", () => (this.#isPlaying ? this.pause() : this.#play()));
    this.#slider.addEventListener("input", () => this.#seek());
  }

  get sampleRate() {
    return this.#player.sampleRate;
  }

  /** Frames. */
  get received() {
    return this.#received;
  }

  get isPlaying() {
    return this.#isPlaying;
  }

  /** Nothing is loaded; whether Play may be pressed all the same. */
  reset(canStart = false) {
    this.#player?.close();
    this.#player = null;
    this.#clear(1);
    this.#button.disabled = !canStart;
    this.#show(false);
  }

  /** Begin anew, to be done while a click or a key is being handled. Throws Failure. */
  begin(sampleRate) {
    this.reset();
    this.#player = new Player(sampleRate);
    this.#clear(sampleRate);
  }

  /** Play as soon as there is something. `coming` is a promise of an object with `channels`, which is passed on. */
  async open(coming) {
    const player = this.#player;
    try {
      const [stream] = await Promise.all([coming, player.load()]);
      player.open(stream.channels, (report) => this.#follow(report));
      this.#channels = stream.channels;
      this.#isComplete = false;
      this.#button.disabled = this.#slider.disabled = false;
      this.#show(true);
      return stream;
    } catch (error) {
      player.close();
      throw error;
    }
  }

  /** Interleaved Int16 samples of whole frames. */
  add(samples) {
    this.#wave.add(samples, this.#channels);
    this.#received += samples.length / this.#channels;
    this.#slider.max = this.#received;
    this.#player.write(samples);
  }

  /** Nothing more will be added. */
  end() {
    this.#isComplete = true;
    this.#player.end();
  }

  pause() {
    this.#player.pause();
    this.#show(false);
  }

  #play() {
    if (!this.#player) return this.#on.onStart();
    if (this.#position === this.#received && this.#isComplete) this.#player.seek(0);
    this.#player.play();
    this.#show(true);
  }

  #follow(report) {
    this.#position = this.#wave.position = this.#slider.value = report.position;
    this.#tellPosition();
    this.#on.onMove(report);
    if (report.finished) this.pause();
  }

  #seek() {
    this.#player.seek(Number(this.#slider.value));
    this.#tellPosition();
  }

  /** For those who do not see the slider: frames say nothing. */
  #tellPosition() {
    const [position, end] = [Number(this.#slider.value), this.#received].map((frames) => this.seconds(frames));
    this.#slider.ariaValueText = `${position} of ${end}`;
  }

  /** A number of frames in words. */
  seconds(frames) {
    return `${(frames / this.sampleRate).toFixed(2)} s`;
  }

  #clear(sampleRate) {
    this.#wave.clear(sampleRate);
    this.#received = this.#position = this.#slider.max = this.#slider.value = 0;
    this.#isComplete = true;
    this.#button.disabled = this.#slider.disabled = true;
  }

  #show(isPlaying) {
    this.#isPlaying = isPlaying;
    this.#button.classList.toggle("playing", isPlaying);
    this.#button.ariaLabel = isPlaying ? "Pause" : "Play";
    this.#on.onPlaying(isPlaying);
  }
}
