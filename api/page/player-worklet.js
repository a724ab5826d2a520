/**
 * A tape that is recorded at one end while it plays at the other, on the audio thread.
 * It starts once it holds a little, and after running dry waits for twice as much as before.
 */

const FIRST_S = 0.2; // held before it starts
const TAIL_S = 0.3; // of silence after the end, so that the device has played everything
const REPORT_S = 0.05;

class Tape extends AudioWorkletProcessor {
  #channels;
  #chunks = []; // interleaved samples
  #starts = []; // frame at which each chunk begins
  #frames = 0;
  #ended = false;
  #position = 0;
  #chunk = 0; // the one that holds the position
  #waiting = true;
  #needed = FIRST_S * sampleRate;
  #underruns = 0;
  #silent = 0;
  #unreported = 0;

  constructor(options) {
    super();
    this.#channels = options.outputChannelCount[0];
    this.port.onmessage = ({ data }) => this.#take(data);
  }

  #take({ samples, ended, seek }) {
    if (samples) {
      this.#chunks.push(samples);
      this.#starts.push(this.#frames);
      this.#frames += samples.length / this.#channels;
    }
    if (ended) this.#ended = true;
    if (seek !== undefined) this.#seek(seek);
  }

  #seek(frame) {
    this.#position = Math.min(Math.max(frame, 0), this.#frames);
    const later = this.#starts.findIndex((start) => start > this.#position);
    this.#chunk = (later < 0 ? this.#chunks.length : later) - 1;
    this.#silent = 0;
    this.#report();
  }

  process(_inputs, [output]) {
    const wanted = output[0].length;
    const held = this.#frames - this.#position;
    if (this.#waiting && (held >= this.#needed || this.#ended)) this.#waiting = false;
    if (this.#waiting) return true;
    const filled = this.#copy(output, Math.min(wanted, held));
    if (filled < wanted) this.#ranDry(wanted - filled);
    this.#unreported += wanted;
    if (this.#unreported >= REPORT_S * sampleRate) this.#report();
    return true;
  }

  #copy(output, frames) {
    let filled = 0;
    while (filled < frames) {
      if (this.#chunk + 1 < this.#chunks.length && this.#position >= this.#starts[this.#chunk + 1]) this.#chunk += 1;
      const samples = this.#chunks[this.#chunk];
      let at = (this.#position - this.#starts[this.#chunk]) * this.#channels;
      const some = Math.min(frames - filled, (samples.length - at) / this.#channels);
      for (let frame = filled; frame < filled + some; frame++) {
        for (const channel of output) channel[frame] = samples[at++];
      }
      filled += some;
      this.#position += some;
    }
    return filled;
  }

  #ranDry(silence) {
    if (!this.#ended) {
      this.#underruns += 1;
      this.#waiting = true;
      this.#needed *= 2;
      this.#report();
    } else if (this.#silent < TAIL_S * sampleRate) {
      this.#silent += silence;
      if (this.#silent >= TAIL_S * sampleRate) this.#report(true);
    }
  }

  #report(finished = false) {
    this.#unreported = 0;
    this.port.postMessage({ position: this.#position, underruns: this.#underruns, finished });
  }
}

registerProcessor("tape", Tape);
