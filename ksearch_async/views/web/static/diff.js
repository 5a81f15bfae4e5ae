// What differs between two candidates of a run, file by file; by default against what the later one builds on.

import { get, runPath } from "./api.js";
import { countOf, foldedStretches, pairedFiles, rowsBetween } from "./differences.js";
import { element, fill, isolated } from "./dom.js";
import { count, counted, legible, legibleLine, words, worth } from "./format.js";
import { address } from "./routes.js";

const MOST_ROWS = 3000; // of one stretch at once; the rest when asked for
const LONGEST_LINE = 2000; // characters
const NARROW_PX = 800; // below, two columns find no room
let wanted = ""; // "split" or "unified", once the reader has said so

export async function open(root, context) {
  const store = context.run();
  fill(root, element("p.quiet-text", {}, "Asking for the candidates …"));
  await store.ready;
  const pair = await chosenPair(store, context.parameters, context.signal);
  context.title(`Differences in ${store.runId}`);
  const body = element("div.diff-body");
  const show = () => fill(body, texts ? drawn(texts, mode()) : said);
  const modes = modeButtons(show);
  let texts = null;
  let said = element("p.quiet-text", {}, "Asking for the candidates …");
  fill(root, pickers(store, context, pair), modes, body);
  if (!pair.right) said = element("p.notice", {}, "This run has no candidate yet.");
  else if (!pair.left)
    said = element(
      "p.notice",
      {},
      "This candidate was written from the reference alone, which is not one of the candidates. Choose another to compare it with.",
    );
  else texts = await bothOf(store.runId, pair, context.signal);
  show();
  const watcher = window.matchMedia(`(max-width: ${NARROW_PX}px)`);
  watcher.addEventListener("change", show);
  return () => watcher.removeEventListener("change", show);
}

/** Returns the candidates that an address names; what it leaves open is the best one, and what that was made of. */
async function chosenPair(store, { left = "", right = "" }, signal) {
  if (left && right) return { left, right };
  const { latest } = store;
  const attempts = latest.attempts();
  const after = left || latest.best()?.candidate_id || attempts.findLast((one) => one.candidate_id)?.candidate_id || "";
  const nodeId = attempts.find((one) => one.candidate_id === after)?.node_id;
  if (!nodeId) return { left: "", right: after };
  const { attempts: answers } = await get(runPath(store.runId, "nodes", nodeId), { signal });
  return { left: answers.find((told) => told.candidate_id === after)?.base_id ?? "", right: after };
}

async function bothOf(runId, pair, signal) {
  const [before, after] = await Promise.all(
    [pair.left, pair.right].map((each) => get(runPath(runId, "candidates", each), { signal })),
  );
  return pairedFiles(before.files, after.files).map((file) => ({
    path: file.path,
    rows: rowsBetween(legible(file.before), legible(file.after)),
  }));
}

function pickers(store, context, pair) {
  const known = candidatesOf(store.latest);
  const picker = (side, label) => {
    const option = (one) => element("option", { value: one.id, selected: one.id === pair[side] }, one.text);
    const missing =
      pair[side] && !known.some((one) => one.id === pair[side])
        ? [{ id: pair[side], text: pair[side].slice(0, 12) }]
        : [];
    const choose = (event) => {
      const next = { ...pair, [side]: event.target.value };
      if (next.left && next.right) context.go("run", store.runId, "diff", next.left, next.right);
    };
    return element(
      "label.picker",
      {},
      element("span", {}, label),
      element(
        "select",
        { data: { side }, onchange: choose },
        !pair[side] && element("option", { value: "" }, "choose a candidate"),
        [...missing, ...known].map(option),
      ),
    );
  };
  const swap = () => context.go("run", store.runId, "diff", pair.right, pair.left);
  return element(
    "div.row.pickers",
    {},
    picker("left", "from"),
    picker("right", "to"),
    element("button", { type: "button", disabled: !pair.left || !pair.right, onclick: swap }, "Swap"),
    nodeLinks(store, pair),
  );
}

function nodeLinks(store, pair) {
  const attempts = store.latest.attempts();
  const nodes = [pair.left, pair.right]
    .map((id) => attempts.find((one) => one.candidate_id === id)?.node_id)
    .filter(Boolean);
  return element(
    "span",
    {},
    [...new Set(nodes)].map((nodeId) => [
      element("a", { href: address("run", store.runId, "node", nodeId) }, nodeId),
      " ",
    ]),
  );
}

function candidatesOf(latest) {
  const found = new Map();
  const confirmed = new Map(latest.confirmations().map((one) => [one.candidate_id, one]));
  for (const one of latest.attempts()) {
    if (!one.candidate_id || found.has(one.candidate_id)) continue;
    const title = legibleLine(latest.node(one.node_id)?.title ?? "", 60);
    const counts = confirmed.get(one.candidate_id) ?? one;
    const came = counts.worth ? worth(counts.worth) : words(counts.fate);
    found.set(one.candidate_id, {
      id: one.candidate_id,
      text: `${one.node_id}${one.round ? `, round ${one.round}` : ""}: ${came} · ${title}`,
    });
  }
  return [...found.values()];
}

function mode() {
  return wanted || (window.innerWidth <= NARROW_PX ? "unified" : "split");
}

function modeButtons(show) {
  const box = element("div.row.diff-modes", { role: "group", "aria-label": "How to show it" });
  const draw = () => {
    const button = (value, text) =>
      element(
        "button",
        {
          type: "button",
          "aria-pressed": String(mode() === value),
          data: { mode: value },
          onclick: () => {
            wanted = value;
            draw();
            show();
            box.querySelector(`[data-mode=${value}]`).focus();
          },
        },
        text,
      );
    fill(box, button("split", "Split"), button("unified", "Unified"));
  };
  draw();
  return box;
}

function drawn(files, how) {
  if (files.every((file) => file.rows.every((row) => row.kind === "same")))
    return element("p.notice", {}, "Both are the same, letter by letter.");
  return files.map((file) => {
    const { added, removed } = countOf(file.rows);
    return element(
      "section.diff-file.panel",
      { "aria-label": `Differences in ${legibleLine(file.path, 100)}` },
      element(
        "h2",
        {},
        element("code", {}, isolated(legibleLine(file.path, 120))),
        " ",
        element("span.good", {}, `+${count(added)}`),
        " ",
        element("span.bad", {}, `−${count(removed)}`),
      ),
      added + removed === 0 ? element("p.quiet-text", {}, "The same in both.") : table(file.rows, how),
    );
  });
}

function table(rows, how) {
  const line = how === "split" ? splitLine : unifiedLines;
  const columns = how === "split" ? 4 : 3;
  const bodies = foldedStretches(rows).map((stretch) => {
    const body = element("tbody");
    const show = (from) => {
      const part = stretch.rows.slice(from, from + MOST_ROWS);
      body.append(...part.flatMap(line));
      const rest = stretch.rows.length - from - part.length;
      if (rest > 0) body.append(opener(columns, `Show ${count(rest)} more lines`, () => show(from + part.length)));
    };
    if (stretch.folded)
      body.append(opener(columns, `${counted(stretch.rows.length, "line", "lines")} the same`, () => show(0)));
    else show(0);
    return body;
  });
  return element("div.scroll", {}, element(`table.diff.${how}`, {}, bodies));
}

function opener(columns, text, act) {
  const open = (event) => {
    event.target.closest("tr").remove();
    act();
  };
  return element(
    "tr.diff-fold",
    {},
    element("td", { colspan: columns }, element("button", { type: "button", onclick: open }, text)),
  );
}

function splitLine(row) {
  const kind = (side, gone) => (row.kind === "same" ? "same" : side ? gone : "none");
  return [element("tr", {}, cells(row.left, kind(row.left, "removed")), cells(row.right, kind(row.right, "added")))];
}

function cells(side, kind) {
  return [
    element(`td.line-number.${kind}`, {}, side?.number),
    element(`td.line.${kind}`, {}, side && textOf(side, kind)),
  ];
}

function unifiedLines(row) {
  const line = (kind, left, right, side) =>
    element(
      "tr",
      {},
      element(`td.line-number.${kind}`, {}, left),
      element(`td.line-number.${kind}`, {}, right),
      element(`td.line.${kind}`, {}, textOf(side, kind)),
    );
  if (row.kind === "same") return [line("same", row.left.number, row.right.number, row.right)];
  return [
    row.left && line("removed", row.left.number, null, row.left),
    row.right && line("added", null, row.right.number, row.right),
  ].filter(Boolean);
}

function textOf(side, kind) {
  const tag = kind === "removed" ? "del" : kind === "added" ? "ins" : "span";
  if (side.parts)
    return element(
      tag,
      {},
      side.parts.map((part) => (part.differs ? element("mark", {}, part.text) : part.text)),
    );
  return element(
    tag,
    {},
    side.text.length > LONGEST_LINE
      ? `${side.text.slice(0, LONGEST_LINE)} … (${count(side.text.length)} characters)`
      : side.text,
  );
}
