/** Server-sent events, with the API key, which browsers' own reader of them cannot send. */

import { call, Failure } from "./api.js";

/** The data of each event of a stream, as it comes. Throws Failure or AbortError. */
export async function* events(path, signal) {
  const response = await call(path, { headers: { Accept: "text/event-stream" }, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(explain);
    if (done) return;
    const parts = `${rest}${value}`.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (data) yield JSON.parse(data.slice("data: ".length));
    }
  }
}

function explain(error) {
  throw error.name === "AbortError" ? error : new Failure("The connection was cut.");
}
