/** Plays samples without gaps while they arrive, at the rate that they were made for. */

import { Failure } from "./api.js";

const FULL_SCALE = 32768;

export class Player {
  #context;
  #node;

  /** To be made while a click or a key is being handled: browsers let nothing else make sound. Throws Failure. */
  constructor(sampleRate) {
    if (!isSecureContext) {
      throw new Failure("Browsers play streams only over https or on localhost. Download works here all the same.");
    }
    this.#context = new AudioContext({ sampleRate });
  }

  get sampleRate() {
    return this.#context.sampleRate;
  }

  /** To be done once before `open`. */
  load() {
    return this.#context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
  }

  /** `onReport({position, underruns, finished})` is called some twenty times a second; the position is in frames. */
  open(channels, onReport) {
    this.#node = new AudioWorkletNode(this.#context, "tape", { numberOfInputs: 0, outputChannelCount: [channels] });
    this.#node.port.onmessage = ({ data }) => onReport(data);
    this.#node.connect(this.#context.destination);
  }

  /** Interleaved Int16 samples of whole frames. */
  write(samples) {
    const floats = Float32Array.from(samples, (sample) => sample / FULL_SCALE);
    this.#node.port.postMessage({ samples: floats }, [floats.buffer]);
  }

  /** Nothing more will be written. */
  end() {
    this.#node.port.postMessage({ ended: true });
  }

  seek(frame) {
    this.#node.port.postMessage({ seek: frame });
  }

  play() {
    return this.#context.resume();
  }

  pause() {
    return this.#context.suspend();
  }

  close() {
    if (this.#node) this.#node.port.onmessage = null;
    if (this.#context.state !== "closed") this.#context.close();
  }
}
