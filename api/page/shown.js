/** How things of a job are written: its status, times and progress. */

import { make } from "./dom.js";

const ENDS = ["succeeded", "failed", "cancelled", "expired"];
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const hasEnded = ({ status }) => ENDS.includes(status);

/** A status as a word with its colour. */
export function badge(status) {
  const words = status.replaceAll("_", " ");
  return make("span", { className: "badge", data: { status } }, words[0].toUpperCase() + words.slice(1));
}

/** Unix seconds as a moment: the time alone where it was today. */
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  return make("time", { dateTime: date.toISOString(), title: day.format(date) }, (isToday ? clock : day).format(date));
}

/** A time span in words. */
export function span(seconds) {
  if (seconds < 60) return `${Number.isInteger(seconds) ? seconds : seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How long a job has taken, up to now where it is still at work; null before it starts. */
export function took({ started_at: start, finished_at: end }) {
  return start ? Math.max((end ?? Math.floor(Date.now() / 1000)) - start, 0) : null;
}

/** How far a job is: a bar of its segments, and beside it the same in words with the audio that there is. */
export function progress({ segments_done: done, segments_total: total, audio_ms: ms }) {
  const words = `${done} of ${total}`;
  return [
    make("progress", { max: total, value: done, ariaLabel: `Segments: ${words}` }),
    make("span", { className: "amount" }, `${words} · ${span(ms / 1000)}`),
  ];
}
