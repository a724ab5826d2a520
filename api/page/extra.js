/** Controls for a model's own parameters, made from the rules in `capabilities.extra_params`. */

import { make } from "./dom.js";

const PARSE = {
  number: Number,
  integer: Number,
  boolean: (text) => text === "true",
  string: String,
  rising: (text) => text.split(",").map(Number),
};

/** Fill `box` with one control for each rule. */
export function showExtra(box, rules) {
  box.replaceChildren(...Object.entries(rules).map(([name, rule]) => fieldFor(name, rule)));
}

/** What the user has set; what was left alone is not in it. */
export function extraValues(box) {
  const set = [...box.querySelectorAll("[name]")].filter((control) => control.value.trim());
  return Object.fromEntries(set.map((control) => [control.name, PARSE[control.dataset.kind](control.value)]));
}

function fieldFor(name, rule) {
  const id = `extra-${name}`;
  const control = controlFor(rule, { id, name, data: { kind: rule.kind } });
  const field = make("div", { className: "field" }, make("label", { htmlFor: id, textContent: name }), control);
  if (rule.description) {
    field.append(make("span", { className: "hint", id: `${id}-hint`, textContent: rule.description }));
    control.setAttribute("aria-describedby", `${id}-hint`);
  }
  return field;
}

function controlFor(rule, properties) {
  const choices = rule.kind === "boolean" ? ["true", "false"] : rule.choices;
  if (choices) {
    const options = choices.map((choice) => new Option(choice, choice));
    return make("select", properties, new Option("Default", ""), ...options);
  }
  const isNumber = rule.kind === "integer" || rule.kind === "number";
  const placeholder = isNumber ? bounds(rule) : rule.kind === "rising" ? "0, 0.5, 1" : "";
  return make("input", { ...properties, inputMode: isNumber ? "decimal" : "text", placeholder });
}

function bounds({ minimum, maximum, above }) {
  const low = minimum ?? (above === undefined ? undefined : `above ${above}`);
  return [low, maximum].filter((bound) => bound !== undefined).join(" to ");
}
