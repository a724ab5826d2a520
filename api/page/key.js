/** The API key: kept for this tab only, and asked for when the server wants one. */

import { element, make } from "./dom.js";

const NAME = "speechmill.key";
const FORM = `
  <form>
    <h2 id="key-title">API key</h2>
    <p class="error" id="key-wrong" role="alert" hidden>This server does not know that key.</p>
    <p class="hint">
      <span id="key-why"></span> Whoever runs it makes one with <code>speechmill keys create</code>.
    </p>
    <div class="field">
      <label for="key">Key</label>
      <input type="password" id="key" autocomplete="off" spellcheck="false" placeholder="sk-…">
      <span class="hint">Kept until this tab is closed.</span>
    </div>
    <div class="actions">
      <button type="submit" class="primary">Use</button>
      <button type="button" id="key-cancel">Cancel</button>
    </div>
  </form>`;
const dialog = make("dialog", { id: "key-dialog", innerHTML: FORM });
let asking = null;

export const currentKey = () => sessionStorage.getItem(NAME) ?? "";

/** Show the dialog, once however many ask; whether a key was given. `code` is the API's, where it refused the last. */
export function askForKey(code = "") {
  asking ??= ask(code).finally(() => (asking = null));
  return asking;
}

function ask(code) {
  const isWrong = code === "invalid_api_key";
  element("key-wrong").hidden = !isWrong;
  element("key-why").textContent = `${code ? "This server asks" : "A server may ask"} for an API key.`;
  element("key").value = currentKey();
  element("key").ariaInvalid = isWrong;
  dialog.returnValue = "";
  dialog.showModal();
  element("key").select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "given"), { once: true });
  });
}

dialog.setAttribute("aria-labelledby", "key-title");
document.body.append(dialog);
element("key-cancel").addEventListener("click", () => dialog.close());
element("key-button").addEventListener("click", () => askForKey());
dialog.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(NAME, element("key").value.trim());
  dialog.close("given");
  dispatchEvent(new Event("keychange"));
});
