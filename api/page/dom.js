/** Finding and making elements. */

export const element = (id) => document.getElementById(id);

/** A new element with these properties; the key `data` holds its data attributes. */
export function make(tag, { data = {}, ...properties } = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  Object.assign(made.dataset, data);
  made.append(...children);
  return made;
}
