/** Text to samples over `POST /v1/audio/speech`: streamed to listen to, or whole to keep. */

import { call, Failure, posting } from "./api.js";

const PATH = "v1/audio/speech";
const EXTENSIONS = { opus: "ogg" };

/**
 * Begin to speak, at `rate` Hz. `order` is `{fields, recording}`.
 * Answers `{channels, samples}` when the first audio is there; `samples` yields an Int16Array of whole frames for each
 * piece that arrives. Throws Failure or AbortError, also while samples are read.
 */
export async function listen(order, rate, signal) {
  const form = { response_format: "pcm", stream_format: "audio", sample_rate: rate };
  const response = await post(order, form, signal);
  const [channels, given] = ["X-Channels", "X-Sample-Rate"].map((name) => Number(response.headers.get(name)));
  if (given !== rate) throw new Failure(`The stream has ${given} Hz, not ${rate}.`);
  return { channels, samples: wholeFrames(response.body, 2 * channels) };
}

/** The complete file in the given format: `{blob, name}`. Throws Failure or AbortError. */
export async function wholeFile(order, format, signal) {
  const response = await post(order, { response_format: format }, signal);
  return { blob: await response.blob(), name: `speech.${EXTENSIONS[format] ?? format}` };
}

function post({ fields, recording }, form, signal) {
  const request = { ...fields, ...form };
  if (!recording) return call(PATH, posting(request, signal));
  const parts = new FormData();
  parts.append("request", JSON.stringify(request));
  parts.append("ref_audio", recording);
  return call(PATH, posting(parts, signal));
}

/** The network cuts where it likes; what is left of a frame goes in front of the next piece. Throws Failure. */
export async function* wholeFrames(body, frameBytes) {
  const reader = body.getReader();
  let rest = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read().catch(explain);
    if (done) return;
    const bytes = new Uint8Array(rest.length + value.length);
    bytes.set(rest);
    bytes.set(value, rest.length);
    const end = bytes.length - (bytes.length % frameBytes);
    rest = bytes.slice(end);
    if (end) yield new Int16Array(bytes.buffer, 0, end / 2);
  }
}

function explain(error) {
  throw error.name === "AbortError" ? error : new Failure("The speech was cut off before its end.");
}
