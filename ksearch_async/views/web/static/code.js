// Shows text of others: sources with highlighting, prompts, answers, logs. Builds nodes and never parses HTML.

import highlighter from "./vendor/highlight/core.min.js";
import cpp from "./vendor/highlight/languages/cpp.min.js";
import json from "./vendor/highlight/languages/json.min.js";
import python from "./vendor/highlight/languages/python.min.js";

import { element, fill } from "./dom.js";
import { count, legible } from "./format.js";

const LONGEST_HIGHLIGHTED = 200_000; // characters; what is longer is shown plain
const FOLDED_LINES = 400; // what has more is cut after SHOWN_LINES until asked for
const SHOWN_LINES = 200;
const LONGEST_LINE = 4_000; // characters; likewise
const DIALECTS = { cpp: "cpp", cuda: "cpp", triton: "python", python: "python", json: "json" };
const ENDINGS = {
  py: "python",
  cu: "cpp",
  cuh: "cpp",
  cpp: "cpp",
  cc: "cpp",
  c: "cpp",
  h: "cpp",
  hpp: "cpp",
  json: "json",
};

highlighter.registerLanguage("cpp", cpp);
highlighter.registerLanguage("python", python);
highlighter.registerLanguage("json", json);

/** Return the highlighter's name of what a file holds; empty if it knows none. */
export function dialectOf(path, language = "") {
  const ending = /\.([a-z]+)$/i.exec(path ?? "")?.[1]?.toLowerCase() ?? "";
  return ENDINGS[ending] ?? DIALECTS[language] ?? "";
}

/**
 * Return an element that shows a text, with line numbers if it is code.
 *
 * Long texts are folded, and long lines cut, until the reader asks for all of it.
 */
export function listing(text, { dialect = "", numbered = false, label = "" } = {}) {
  const box = element("div.listing");
  const shown = legible(String(text ?? ""));
  const lines = shown.split("\n");
  if (lines.length > 1 && lines.at(-1) === "") lines.pop();
  const isLong = lines.length > FOLDED_LINES || lines.some((line) => line.length > LONGEST_LINE);
  const draw = (all) => {
    const cut = all ? lines : lines.slice(0, lines.length > FOLDED_LINES ? SHOWN_LINES : lines.length).map(shortened);
    fill(box, page(cut, dialect, numbered, label), isLong && toggle(all, lines, shown.length, () => draw(!all)));
  };
  draw(!isLong);
  return box;
}

/** Return nodes that show a text highlighted. */
export function highlighted(text, dialect) {
  if (!dialect || text.length > LONGEST_HIGHLIGHTED) return [document.createTextNode(text)];
  const result = highlighter.highlight(text, { language: dialect, ignoreIllegals: true });
  return nodesOf(result._emitter.rootNode); // its tree of scopes: the HTML in `value` is not used
}

function nodesOf(scope) {
  return scope.children.map((child) => {
    if (typeof child === "string") return document.createTextNode(child);
    return element(`span${classOf(child.scope ?? "")}`, {}, nodesOf(child));
  });
}

function classOf(scope) {
  const [first] = scope.split(".");
  return /^[a-z_-]+$/i.test(first) ? `.hl-${first.toLowerCase()}` : "";
}

function page(lines, dialect, numbered, label) {
  const numbers = lines.map((_, at) => at + 1).join("\n");
  return element(
    numbered ? "div.listing-page.numbered" : "div.listing-page",
    { tabindex: 0, role: "region", "aria-label": label || "text" }, // scrolls by keyboard
    numbered && element("pre.listing-gutter", { "aria-hidden": "true" }, numbers),
    element("pre.listing-text", {}, highlighted(lines.join("\n"), dialect)),
  );
}

function shortened(line) {
  return line.length > LONGEST_LINE ? `${line.slice(0, LONGEST_LINE)} … (${count(line.length)} characters)` : line;
}

function toggle(all, lines, characters, act) {
  const said = all ? "Show less" : `Show all (${count(lines.length)} lines, ${count(characters)} characters)`;
  return element("button.listing-more", { type: "button", onclick: act }, said);
}
