/** Files that the user keeps. */

import { call } from "./api.js";
import { make } from "./dom.js";

/** Hand a blob to the browser as a download. */
export function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** What is at `path`, under the name that the server gives it, else `name`. Throws Failure. */
export async function saveFrom(path, name) {
  const response = await call(path);
  save(await response.blob(), nameOf(response.headers.get("Content-Disposition") ?? "") ?? name);
}

function nameOf(disposition) {
  const [, plain] = disposition.match(/filename="([^"]+)"/) ?? [];
  const [, encoded] = disposition.match(/filename\*=UTF-8''(\S+)/) ?? [];
  return plain ?? (encoded && decodeURIComponent(encoded));
}
