/** Draws the loudness of what has arrived, the played part in the accent colour. */

const PEAKS_PER_S = 50;
const BAR = 3; // CSS pixels, and as many as GAP between two
const GAP = 2;
const FULL_SCALE = 32768;

export class Waveform {
  #canvas;
  #peaks = [];
  #framesPerPeak = 1;
  #frames = 0;
  #position = 0;
  #drawn = true;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#redraw()).observe(canvas);
    addEventListener("themechange", () => this.#redraw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
  }

  /** Begin anew with samples of this rate. */
  clear(sampleRate) {
    this.#framesPerPeak = sampleRate / PEAKS_PER_S;
    this.#peaks = [];
    this.#frames = this.#position = 0;
    this.#redraw();
  }

  /** Interleaved Int16 samples. */
  add(samples, channels) {
    for (let at = 0; at < samples.length; at += channels) {
      const peak = Math.floor(this.#frames++ / this.#framesPerPeak);
      const level = Math.abs(samples[at]) / FULL_SCALE;
      this.#peaks[peak] = Math.max(this.#peaks[peak] ?? 0, level);
    }
    this.#redraw();
  }

  /** Frames that have been played. */
  set position(frame) {
    this.#position = frame;
    this.#redraw();
  }

  #redraw() {
    if (!this.#drawn) return;
    this.#drawn = false;
    requestAnimationFrame(() => {
      this.#drawn = true;
      this.#draw();
    });
  }

  #draw() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    this.#canvas.width = width * devicePixelRatio;
    this.#canvas.height = height * devicePixelRatio;
    const pen = this.#canvas.getContext("2d");
    pen.scale(devicePixelRatio, devicePixelRatio);
    const style = getComputedStyle(this.#canvas);
    const bars = Math.floor((width + GAP) / (BAR + GAP));
    const peaksPerBar = Math.max(this.#peaks.length / bars, 1);
    const played = this.#position / this.#framesPerPeak / peaksPerBar;
    for (let bar = 0; bar < bars; bar++) {
      const own = this.#peaks.slice(Math.floor(bar * peaksPerBar), Math.ceil((bar + 1) * peaksPerBar));
      const size = Math.max(Math.sqrt(Math.max(0, ...own)) * height, BAR); // quiet speech is to be seen, too
      pen.fillStyle = own.length && bar < played ? style.accentColor : style.color;
      pen.globalAlpha = own.length ? 1 : 0.35;
      pen.beginPath();
      pen.roundRect(bar * (BAR + GAP), (height - size) / 2, BAR, size, BAR / 2);
      pen.fill();
    }
  }
}
