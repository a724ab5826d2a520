/** Commands that call a route, ready to be pasted into a shell. */

import { exampleOf, resolve } from "./schema.js";

const KEY = `-H "Authorization: Bearer $SPEECHMILL_API_KEY"`;

/** `path` and `operation` are of the OpenAPI description `root`. */
export function curlOf(method, path, operation, root) {
  const parts = [`curl ${quote(absolute(address(path, operation)))}`];
  if (method !== "get" && method !== (operation.requestBody ? "post" : "")) parts[0] += ` -X ${method.toUpperCase()}`;
  if (operation.security) parts.push(KEY);
  const content = operation.requestBody?.content ?? {};
  if (content["application/json"]) parts.push(...json(content["application/json"].schema, root));
  else if (content["multipart/form-data"]) parts.push(...form(content["multipart/form-data"].schema, root));
  if (answersAudio(operation)) parts.push("-o speech.wav");
  return parts.join(" \\\n  ");
}

/** A job with the same request. */
export function curlOfJob(path, request) {
  return [`curl ${quote(absolute(`/${path}`))}`, KEY, ...posted({ request })].join(" \\\n  ");
}

/** With the server that this page comes from. */
function absolute(path) {
  return new URL(".", location.href).href.replace(/\/$/, "") + path;
}

function address(path, { parameters = [] }) {
  const query = parameters.filter((parameter) => parameter.in === "query" && parameter.required);
  const pairs = query.map(({ name, schema }) => `${name}=${schema.examples?.[0] ?? name.toUpperCase()}`);
  return path.replace(/{(\w+)}/g, (_, name) => name.toUpperCase()) + (pairs.length ? `?${pairs.join("&")}` : "");
}

function json(schema, root) {
  return posted(exampleOf(schema, root) ?? {});
}

function posted(body) {
  return ["-H 'Content-Type: application/json'", `-d ${quote(JSON.stringify(body))}`];
}

function form(schema, root) {
  const { properties, required = [] } = resolve(schema, root);
  const isFile = (field) => field.format === "binary";
  const sent = Object.entries(properties).filter(([name, field]) => required.includes(name) || isFile(field));
  return sent.map(([name, field]) => {
    const value = isFile(field) ? `@${name}.wav` : (exampleOf(field, root) ?? name.toUpperCase());
    return `-F ${quote(`${name}=${value}`)}`;
  });
}

function answersAudio({ responses }) {
  return Object.keys(responses[200]?.content ?? {}).some((type) => type.startsWith("audio/"));
}

function quote(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
