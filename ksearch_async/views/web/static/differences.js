// What differs between two texts, as rows for a page: pure, knows no document.

import { diffLines } from "./vendor/jsdiff/diff/line.js";
import { diffWordsWithSpace } from "./vendor/jsdiff/diff/word.js";

const PATIENCE_MS = 1500; // for one pair of texts; what takes longer is shown as all out, all in
const LONGEST_LINE_FOR_WORDS = 1000;
const CONTEXT_LINES = 3;
const LEAST_FOLD = 4; // lines; a shorter stretch is not worth a click

/**
 * Return rows `{kind, left, right}`, in order. `kind` is "same", "changed", "removed" or "added"; a side is null or
 * `{number, text, parts}` with `parts` a list of `{text, differs}` for changed lines, else null.
 */
export function rowsBetween(before, after) {
  const [old, fresh] = [whole(before), whole(after)]; // that the last line ends is no difference
  const changes = diffLines(old, fresh, { timeout: PATIENCE_MS }) ?? [
    { value: old, removed: true },
    { value: fresh, added: true },
  ];
  const rows = [];
  let left = 0;
  let right = 0;
  for (let at = 0; at < changes.length; at += 1) {
    const change = changes[at];
    const lines = linesOf(change.value);
    if (change.removed) {
      const next = changes[at + 1];
      const added = next?.added ? linesOf(next.value) : [];
      if (next?.added) at += 1;
      rows.push(...replaced(lines, added, left, right));
      left += lines.length;
      right += added.length;
    } else if (change.added) {
      rows.push(...replaced([], lines, left, right));
      right += lines.length;
    } else {
      for (const text of lines) {
        left += 1;
        right += 1;
        rows.push({ kind: "same", left: side(left, text), right: side(right, text) });
      }
    }
  }
  return rows;
}

/** Return the rows in stretches `{folded, rows}`: long ones in which nothing differs are folded. */
export function foldedStretches(rows, context = CONTEXT_LINES) {
  const near = new Uint8Array(rows.length);
  rows.forEach((row, at) => {
    if (row.kind !== "same") near.fill(1, Math.max(0, at - context), at + context + 1);
  });
  const stretches = [];
  for (let start = 0; start < rows.length;) {
    let end = start + 1;
    while (end < rows.length && near[end] === near[start]) end += 1;
    const stretch = rows.slice(start, end);
    const last = stretches.at(-1);
    const folded = !near[start] && stretch.length >= LEAST_FOLD;
    if (!folded && last && !last.folded) last.rows.push(...stretch);
    else stretches.push({ folded, rows: stretch });
    start = end;
  }
  return stretches;
}

/** Return `{added, removed}`: how many lines there are of each. */
export function countOf(rows) {
  let added = 0;
  let removed = 0;
  for (const row of rows) {
    if (row.kind === "same") continue;
    if (row.left) removed += 1;
    if (row.right) added += 1;
  }
  return { added, removed };
}

/** Pair the files of two candidates by path: `{path, before, after}`, texts empty where one has no such file. */
export function pairedFiles(before, after) {
  const paths = [...new Set([...before, ...after].map((file) => file.path))];
  const textOf = (files, path) => files.find((file) => file.path === path)?.text ?? "";
  return paths.map((path) => ({ path, before: textOf(before, path), after: textOf(after, path) }));
}

function whole(text) {
  return text === "" || text.endsWith("\n") ? text : `${text}\n`;
}

function linesOf(text) {
  if (text === "") return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

function side(number, text, parts = null) {
  return { number, text, parts };
}

function replaced(out, in_, left, right) {
  const rows = [];
  for (let at = 0; at < Math.max(out.length, in_.length); at += 1) {
    const gone = at < out.length ? side(left + at + 1, out[at]) : null;
    const come = at < in_.length ? side(right + at + 1, in_[at]) : null;
    if (gone && come) markWords(gone, come);
    rows.push({ kind: gone && come ? "changed" : gone ? "removed" : "added", left: gone, right: come });
  }
  return rows;
}

function markWords(gone, come) {
  if (Math.max(gone.text.length, come.text.length) > LONGEST_LINE_FOR_WORDS) return;
  const parts = diffWordsWithSpace(gone.text, come.text);
  const kept = parts.filter((part) => !part.added && !part.removed);
  if (!kept.some((part) => part.value.trim().length > 2)) return; // another line altogether
  gone.parts = parts
    .filter((part) => !part.added)
    .map((part) => ({ text: part.value, differs: Boolean(part.removed) }));
  come.parts = parts
    .filter((part) => !part.removed)
    .map((part) => ({ text: part.value, differs: Boolean(part.added) }));
}
