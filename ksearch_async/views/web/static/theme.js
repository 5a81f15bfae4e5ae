// Dark and light: as the system has it, unless the reader chose.

const KEY = "ksearch-theme";
const ORDER = ["auto", "light", "dark"];
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
const listeners = new Set();

/** Gives the button its work, and applies what was chosen before. */
export function followTheme(button) {
  button.addEventListener("click", () => {
    const next = ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length];
    localStorage.setItem(KEY, next);
    apply(button);
  });
  dark.addEventListener("change", () => apply(button));
  apply(button);
}

/** Calls back after the colours changed. Returns how to stop that. */
export function onThemeChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns a colour of the style sheet as it is now: `color("fate-wrong")`. Drawings on a canvas need it. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** True: the reader asked for little motion. */
export function isStill() {
  return still.matches;
}

function chosen() {
  const kept = localStorage.getItem(KEY);
  return ORDER.includes(kept) ? kept : "auto";
}

function apply(button) {
  const choice = chosen();
  const isDark = choice === "auto" ? dark.matches : choice === "dark";
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  button.textContent = `Theme: ${choice}`;
  for (const listener of listeners) listener();
}
