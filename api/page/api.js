/** The API as the page calls it: the key goes along, and whatever fails is a Failure with words for the user. */

import { askForKey, currentKey } from "./key.js";

export class Failure extends Error {
  constructor(message, code = "") {
    super(message);
    this.code = code;
  }
}

/** The response, if it is a good one. Throws Failure, or AbortError when `options.signal` says so. */
export async function call(path, options = {}) {
  let key = currentKey();
  let response = await send(path, options, key);
  while (response.status === 401) {
    const failure = await failureOf(response);
    // another call may have asked meanwhile
    if (currentKey() === key && !(await askForKey(failure.code))) throw failure;
    key = currentKey();
    response = await send(path, options, key);
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

export async function callJson(path, options) {
  return (await call(path, options)).json();
}

/** Whether the server wants another key than there is. It may show its lists to everybody all the same. */
export async function isTurnedAway() {
  return (await send("v1/files?limit=1", {}, currentKey())).status === 401;
}

/** Options of a POST: JSON, or a form where files go along. */
export function posting(body, signal) {
  if (body instanceof FormData) return { method: "POST", body, signal };
  return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
}

async function send(path, options, key) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Failure("The server does not answer.");
  }
}

async function failureOf(response) {
  try {
    const { error } = await response.json();
    return new Failure(error.message, error.code);
  } catch {
    return new Failure(`The server answered ${response.status}.`);
  }
}
