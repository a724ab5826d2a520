/** What error codes mean, as the API's description has it. */

import { callJson } from "./api.js";

let rows = null; // a promise

/** The sentence of `/docs` for a code, "" where there is none. Throws Failure. */
export async function meaningOf(code) {
  rows ??= load();
  try {
    return (await rows).get(code) ?? "";
  } catch (error) {
    rows = null;
    throw error;
  }
}

async function load() {
  const { description } = (await callJson("openapi.json")).components.schemas.Error;
  return new Map([...description.matchAll(/^\| `(\w+)` \| \d+ \| (.*) \|$/gm)].map(([, code, told]) => [code, told]));
}
