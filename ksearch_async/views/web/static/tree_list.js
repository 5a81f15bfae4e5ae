// The tree as a table, for those who do not see the drawing, or look for a title.

import { element, fill } from "./dom.js";
import { lookOf, stateWord } from "./fates.js";
import { count, legibleLine, words, worth } from "./format.js";
import { address } from "./routes.js";

const DEEPEST_INDENT = 12;

/** Makes the table; `show(moment)` fills it with all actions, each below its parent. */
export function treeList(runId) {
  const body = element("tbody");
  const heads = ["Action", "State", "Best", "Rounds", "Fates"];
  const table = element("table.tree-list", {},
    element("caption.unseen", {}, "Actions of the search tree"),
    element("thead", {}, element("tr", {}, heads.map((head, index) => element(index === 2 || index === 3 ? "th.number" : "th", { scope: "col" }, head)))),
    body,
  );
  const show = (moment) => fill(body, inTreeOrder(moment.nodes()).map((node) => row(node, runId, moment.head?.scored)));
  return { element: element("div.scroll", {}, table), show };
}

/** Returns nodes depth first: whoever reads on from an action reads what came of it. */
export function inTreeOrder(nodes) {
  const below = new Map();
  for (const node of nodes) {
    if (!below.has(node.parent_id)) below.set(node.parent_id, []);
    below.get(node.parent_id).push(node);
  }
  const ordered = [];
  const waiting = [...(below.get("") ?? [])].reverse();
  while (waiting.length) {
    const node = waiting.pop();
    ordered.push(node);
    waiting.push(...[...(below.get(node.node_id) ?? [])].reverse());
  }
  return ordered;
}

function row(node, runId, scored) {
  const title = element("a", { href: address("run", runId, "node", node.node_id) },
    element("span.quiet-text", {}, `${node.node_id} `), element("bdi", {}, legibleLine(node.title, 160)));
  const fates = (node.fates ?? []).map(([fate, times]) => element("span.fate", { data: { fate } }, `${times > 1 ? `${times}x ` : ""}${words(fate)} `));
  const indent = `level-${Math.min(node.depth ?? 0, DEEPEST_INDENT)}`;
  return element("tr", { data: { node: node.node_id, shape: lookOf(node).shape } },
    element(`th.${indent}`, { scope: "row" }, title),
    element("td", {}, stateWord(node)),
    element("td.number", {}, node.best ? worth(node.best, scored) : ""),
    element("td.number", {}, node.rounds ? count(node.rounds) : ""),
    element("td", {}, fates),
  );
}
