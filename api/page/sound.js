/** What can be heard of a job: its stream while it is made, its file when it is done. */

import { call, Failure } from "./api.js";
import { wholeFrames } from "./speech.js";

const AGAIN_MS = 2000;

/**
 * From the first frame on, followed while it is made, over connections that are cut: `{rate, channels, samples}`,
 * where `samples` yields an Int16Array of whole frames for each piece. Answers when there is something to hear.
 * Throws Failure or AbortError.
 */
export async function liveSound({ links }, signal) {
  const response = await call(here(links.stream), { signal });
  const [rate, channels] = ["X-Sample-Rate", "X-Channels"].map((name) => Number(response.headers.get(name)));
  return { rate, channels, samples: resumed(here(links.stream), response, channels, signal) };
}

async function* resumed(path, first, channels, signal) {
  let response = first;
  let frames = 0;
  for (;;) {
    try {
      response ??= await call(`${path}?from_frame=${frames}`, { signal });
      for await (const piece of wholeFrames(response.body, 2 * channels)) {
        frames += piece.length / channels;
        yield piece;
      }
      return;
    } catch (error) {
      if (!(error instanceof Failure) || error.code) throw error;
    }
    response = null;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

/** The same of a job that has succeeded, from the stored file. */
export async function storedSound({ links, result }, signal) {
  const response = await call(here(`${links.audio}?redirect=false`), { signal });
  const { sample_rate: rate, channels, format } = result;
  const file = await response.arrayBuffer();
  const samples = format === "pcm" ? new Int16Array(file) : await decoded(file, format, rate, channels);
  return { rate, channels, samples: [samples] };
}

/** A link of the API as a path from this page, which need not stand at the root of its server. */
export function here(link) {
  return link.replace(/^\//, "");
}

async function decoded(file, format, rate, channels) {
  const buffer = await new OfflineAudioContext(channels, 1, rate).decodeAudioData(file).catch(() => {
    throw new Failure(`This browser cannot play ${format} files. Download it instead.`);
  });
  const samples = new Int16Array(buffer.length * channels);
  for (let channel = 0; channel < channels; channel++) {
    buffer.getChannelData(channel).forEach((level, at) => {
      samples[at * channels + channel] = Math.max(-32768, Math.min(32767, Math.round(level * 32768)));
    });
  }
  return samples;
}
