// How numbers, durations and texts are put for people; the same wording as on the terminal.

const NONE = "–";

/** `2.44x`; a score keeps six digits. Null: a dash. */
export function speedup(value, { scored = false, isLeast = false } = {}) {
  if (value === null || value === undefined) return NONE;
  if (scored) return String(Number(value.toPrecision(6)));
  const digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return `${isLeast ? "≥ " : ""}${value.toFixed(digits)}x`;
}

/** `[2.31, 2.58]`; empty where the interval is not known. */
export function interval(low, high) {
  if (low === null || low === undefined || high === null || high === undefined) return "";
  return `[${low.toFixed(2)}, ${high.toFixed(2)}]`;
}

/** What a `Worth` or `Mark` is worth, in a word: its speedup, what it has at least, or its score. */
export function worth(value, scored = false) {
  if (!value) return NONE;
  if (scored || (value.speedup ?? null) === null) return speedup(value.credit, { scored });
  return speedup(value.speedup, { isLeast: value.is_least });
}

/** Microseconds: `41.0 us`, `3.20 ms`. */
export function latency(microseconds) {
  if (microseconds === null || microseconds === undefined) return NONE;
  for (const [unit, size] of [["us", 1], ["ms", 1e3], ["s", 1e6]]) {
    const value = microseconds / size;
    if (value < 1000 || unit === "s") return `${significant(value)} ${unit}`;
  }
  return NONE;
}

/** Seconds: `48.2 s`, `3 min 12 s`, `2 h 05 min`. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes} min ${whole % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Dollars: `$0.83`, and more digits below a cent's worth. */
export function dollars(value) {
  if (value === null || value === undefined) return NONE;
  return `$${value > 0 && value < 0.1 ? value.toFixed(4) : value.toFixed(2)}`;
}

/** `1,204`. */
export function count(value) {
  return value === null || value === undefined ? NONE : Math.round(value).toLocaleString("en-US");
}

/** `1 branch`, `4 branches`. */
export function counted(value, one, many) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Large numbers shortened: `950`, `12.4 k`, `3.1 M`. */
export function shortCount(value) {
  if (value === null || value === undefined) return NONE;
  if (value < 1e4) return count(value);
  return value < 1e6 ? `${(value / 1e3).toFixed(1)} k` : `${(value / 1e6).toFixed(1)} M`;
}

/** A share of one: `71 %`. */
export function share(value) {
  return value === null || value === undefined || Number.isNaN(value) ? NONE : `${Math.round(value * 100)} %`;
}

/** Three significant digits: `0.0123`, `4.10`, `41.0`, `410`. */
export function significant(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(digits, 6));
}

/** The reader's own date and time: `2026-11-20 14:23:01`. Empty for none. */
export function stamp(iso) {
  if (!iso) return "";
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return "";
  const two = (part) => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A tag for people: `did_not_build` reads `did not build`, `outpaced` `stopped early`. */
export function words(tag) {
  return tag === "outpaced" ? "stopped early" : String(tag).replaceAll("_", " ");
}

// Characters that show nothing and change what is around them: controls, and those that turn or hide text.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/**
 * Hostile text as a person can judge it: what would turn, hide, move or colour text is named instead, `‹U+202E›`. Line ends
 * and tabs stay.
 *
 * @param {string} text
 * @param {number} [limit] characters that are shown at most; the rest is counted.
 */
export function legible(text, limit = Infinity) {
  const kept = text.length > limit ? text.slice(0, limit) : text;
  const shown = kept.replace(/\r\n/g, "\n").replace(UNSEEN, named);
  return text.length > limit ? `${shown} … (${count(text.length)} characters)` : shown;
}

/** `legible`, on one line. */
export function legibleLine(text, limit = 200) {
  const line = text.slice(0, limit * 4).replace(/\s+/g, " ").trim();
  const isWhole = text.length <= limit * 4 && line.length <= limit;
  return isWhole ? legible(line) : `${legible(line.slice(0, limit))} … (${count(text.length)} characters)`;
}

function named(character) {
  return `‹U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`;
}
