/** Reads the JSON schemas of an OpenAPI description, `root`: what fields there are, and what they take. */

/** The schema that a reference stands for, or the schema itself. */
export function resolve(schema, root) {
  return schema.$ref ? root.components.schemas[schema.$ref.split("/").at(-1)] : schema;
}

/**
 * Every field of an object, those of nested objects behind it with dotted names.
 * Each is `{name, isRequired}` and what `describe` answers.
 */
export function fieldsOf(schema, root, prefix = "", above = []) {
  const { properties = {}, required = [] } = resolve(schema, root);
  const rank = ([key]) => (required.includes(key) ? 0 : 1);
  const inOrder = Object.entries(properties).sort((one, other) => rank(one) - rank(other));
  return inOrder.flatMap(([key, field]) => {
    const name = `${prefix}${key}`;
    const own = { name, isRequired: required.includes(key), ...describe(field, root) };
    return [own, ...nested(field, root, name, [...above, schema])];
  });
}

/** What one parameter or field is, as `fieldsOf` has it. */
export function describe(field, root) {
  const branches = branchesOf(field, root);
  return {
    type: typeOfAny(branches, root),
    bounds: unique(branches.flatMap(boundsOf)).join(", "),
    description: resolve(field, root).description ?? "",
    example: exampleOf(field, root),
    default: field.default ?? undefined,
  };
}

/** An example of a whole value: the schema's own, else one made of its required fields'. */
export function exampleOf(schema, root) {
  const found = resolve(schema, root);
  const own = schema.example ?? schema.examples?.[0] ?? found.example ?? found.examples?.[0] ?? found.enum?.[0];
  if (own !== undefined || !found.properties) return own;
  const needed = (found.required ?? []).map((key) => [key, exampleOf(found.properties[key], root)]);
  return Object.fromEntries(needed);
}

function nested(field, root, name, above) {
  return branchesOf(field, root).flatMap((branch) => {
    const inner = branch.items ? resolve(branch.items, root) : branch;
    const isLoop = above.some((outer) => resolve(outer, root) === inner);
    return isLoop ? [] : fieldsOf(inner, root, `${name}${branch.items ? "[]" : ""}.`, above);
  });
}

function branchesOf(schema, root) {
  const found = resolve(schema, root);
  const branches = found.anyOf ?? found.oneOf;
  if (!branches) return [found];
  const { anyOf, oneOf, ...shared } = found; // bounds may stand beside the branches
  return branches.flatMap((branch) => branchesOf(branch, root)).map((branch) => ({ ...shared, ...branch }));
}

function typeOfAny(branches, root) {
  const types = unique(branches.map((branch) => typeOf(branch, root)));
  return types.filter((type) => type !== "integer" || !types.includes("number")).join(" or ");
}

function typeOf(schema, root) {
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.format === "binary") return "file";
  if (schema.type === "array") {
    return `list of ${typeOfAny(branchesOf(schema.items ?? {}, root), root)}`;
  }
  return [schema.type ?? "any"].flat().join(" or ");
}

function boundsOf(schema) {
  const words = {
    minLength: (bound) => `at least ${bound} characters`,
    maxLength: (bound) => `at most ${bound} characters`,
    minItems: (bound) => `at least ${bound} items`,
    maxItems: (bound) => `at most ${bound} items`,
    maxProperties: (bound) => `at most ${bound} keys`,
    minimum: (bound) => `≥ ${bound}`,
    maximum: (bound) => `≤ ${bound}`,
    exclusiveMinimum: (bound) => `> ${bound}`,
    exclusiveMaximum: (bound) => `< ${bound}`,
    pattern: (bound) => `matches ${bound}`,
  };
  const given = Object.keys(words).filter((key) => schema[key] !== undefined);
  return given.map((key) => words[key](exact(schema[key])));
}

/** JavaScript cannot write numbers of 64 bits exactly; those in a description are powers of two. */
function exact(bound) {
  if (typeof bound !== "number" || Math.abs(bound) <= Number.MAX_SAFE_INTEGER) return bound;
  return `${bound < 0 ? "−" : ""}2^${Math.log2(Math.abs(bound))}`;
}

function unique(values) {
  return [...new Set(values)];
}
