/** Buttons that copy. */

/** Have the button copy what `text()` answers; hidden where the browser has no clipboard for this page. */
export function copies(button, text) {
  const label = button.textContent;
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 2000);
  });
}
