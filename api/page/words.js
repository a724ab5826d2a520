/** Failures in words for a person. The API's code stays beside them, small, for whoever looks into it. */

import { make } from "./dom.js";

const BUSY = "The server has all the work that it can take. Try again in a moment.";
const AWAY = "The server cannot do this at the moment. Try again soon, or choose another model.";
const BROKEN = "Something went wrong on the server. Try again.";
const SLOW = "This took the server too long. Try again, or speak a shorter text.";
const SENTENCES = {
  missing_api_key: "This server asks for an API key.",
  invalid_api_key: "This server does not know your API key.",
  permission_denied: "Your API key does not allow this.",
  empty_input: "There is nothing to say in this text.",
  input_too_long: "The text is too long to be spoken at once.",
  invalid_voice: "This model does not have the chosen voice.",
  voice_required: "This model needs a voice or a reference recording.",
  instructions_required: "This model needs instructions: say how it shall speak.",
  instructions_too_long: "The instructions are too long.",
  duration_required: "This model needs a duration or a reference recording.",
  ref_audio_required: "This model needs a reference recording.",
  ref_text_required: "This model needs the words: write down what is said in the recording.",
  ref_audio_invalid: "The recording cannot be read. Try it as WAV or MP3.",
  ref_audio_too_short: "The recording is too short.",
  ref_audio_too_long: "The recording is too long.",
  ref_audio_too_large: "The recording is too large a file.",
  file_too_large: "The recording is too large a file.",
  request_too_large: "This is more than the server takes at once.",
  voice_exists: "There is a voice of this name already.",
  voice_name_reserved: "A built-in voice has this name. Choose another one.",
  rate_limit_exceeded: "These are too many requests for your key. Try again in a moment.",
  concurrency_limit_exceeded: "As much is being made for your key as it allows. Try again in a moment.",
  quota_exceeded: "Your key is used up.",
  queue_full: BUSY,
  out_of_memory: BUSY,
  no_workers: AWAY,
  model_loading: AWAY,
  shutting_down: AWAY,
  internal_error: BROKEN,
  generation_failed: BROKEN,
  incomplete_generation: BROKEN,
  deadline_exceeded: SLOW,
  first_audio_timeout: SLOW,
};

const ADVICE = {
  deadline_exceeded: "Try again when less waits, or give it a longer deadline_seconds.",
  expired: "Try again when less waits, or give it a longer deadline_seconds.",
  generation_failed: "Try again. If it fails once more, try with a new seed, or change the text.",
  incomplete_generation: "Try with a new seed, or with a shorter text.",
};

/** What to do about the error of a job. */
export function adviceOn({ code, retryable }) {
  if (!retryable) return "Another try would end in the same: change the request and queue it anew.";
  return ADVICE[code] ?? "Try again.";
}

/** Show a failure in an element that is hidden as long as there is none. */
export function showFailure(box, { message, code }) {
  const detail = code ? [" ", make("small", { title: message }, code)] : [];
  box.replaceChildren(SENTENCES[code] ?? sentence(message), ...detail);
  box.hidden = false;
}

function sentence(message) {
  return `${message[0].toUpperCase()}${message.slice(1)}${/[.!?]$/.test(message) ? "" : "."}`;
}
