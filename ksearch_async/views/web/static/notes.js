// The latest lines for people, newest first.

import { element, fill } from "./dom.js";
import { duration, legibleLine } from "./format.js";
import { address } from "./routes.js";

const SHOWN = 60;
const LONGEST = 320;

/** Makes the list; `show(moment)` fills it. */
export function noteList(run) {
  const list = element("ol.notes");
  let said = "";

  function show(moment) {
    const notes = moment.notes(SHOWN);
    const key = `${notes.length} ${notes.at(-1)?.position ?? ""}`;
    if (key === said) return;
    said = key;
    fill(list, notes.reverse().map((note) => line(note, run)));
  }

  return { element: list, show };
}

function line(note, run) {
  const text = element("bdi", {}, legibleLine(note.text, LONGEST));
  const shown = note.node_id ? element("a", { href: address("run", run.runId, "node", note.node_id) }, text) : text;
  const when = duration(run.at(note.position).totals.elapsed_s);
  return element("li", { data: { kind: note.kind } }, element("span.when", {}, when), element("span.text", {}, shown));
}
