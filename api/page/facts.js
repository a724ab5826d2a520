/** A job's times and figures, each with its name. */

import { make } from "./dom.js";
import { hasEnded, moment, span, took } from "./shown.js";

/** Everything that stands in a job but its text, for a `dl`. */
export function facts(job) {
  const { created_at: created, started_at: started, first_audio_at: first } = job;
  const { finished_at: finished, expires_at: gone } = job;
  const seconds = took(job);
  const told = {
    Model: job.model,
    Voice: job.voice,
    Priority: job.priority,
    Tries: `${job.attempt} of ${job.max_attempts}`,
    Stage: hasEnded(job) ? null : job.progress.stage,
    Created: created && moment(created),
    "Waited for": started && span(started - created),
    "First audio after": first && span(first - created),
    "Worked for": seconds === null ? null : span(seconds),
    Finished: finished && moment(finished),
    "Kept until": gone && moment(gone),
    Seed: Number.isSafeInteger(job.result?.seed) ? job.result.seed : null, // JSON.parse rounds others
    File: job.result && `${job.result.format}, ${size(job.result.bytes)}`,
    Group: job.group_id && make("a", { href: `#jobs?group_id=${encodeURIComponent(job.group_id)}` }, job.group_id),
  };
  const all = [...Object.entries(told), ...Object.entries(job.metadata)];
  return all.filter(([, value]) => (value ?? null) !== null).map(([name, value]) => fact(name, value));
}

/** One name and what it is: text or an element. */
export function fact(name, value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value));
}

function size(bytes) {
  return bytes < 1e6 ? `${Math.ceil(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
