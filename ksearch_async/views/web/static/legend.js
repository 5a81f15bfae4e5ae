// What colours, shapes and sizes of the tree say.

import { element, svg } from "./dom.js";
import { FATES } from "./fates.js";
import { words } from "./format.js";

const RIGHT = ["measured", "scored", "outpaced", "unstable"];

/** Returns the legend for the fates that occur in a run. */
export function legend(fates) {
  const shown = FATES.filter(([fate]) => fates.includes(fate));
  return element("ul.legend", { "aria-label": "Legend" },
    shown.map(([fate, meaning]) => item(RIGHT.includes(fate) ? "disc" : "diamond", `fate-${fate}`, words(fate), meaning)),
    item("ring", "fate-none", "not tried"),
    item("cross", "fate-none", "pruned"),
    item("halo", "in-flight", "in flight"),
    item("halo", "best", "best, and the path to it"),
    element("li.quiet-text", {}, "larger: faster"),
  );
}

function item(shape, tone, said, meaning = "") {
  return element("li", { title: meaning }, swatch(shape, tone), said);
}

function swatch(shape, tone) {
  const drawn = {
    disc: () => svg("circle", { cx: 7, cy: 7, r: 4.5, class: "filled" }),
    diamond: () => svg("path", { d: "M7 1.5 12.5 7 7 12.5 1.5 7Z", class: "filled" }),
    ring: () => svg("circle", { cx: 7, cy: 7, r: 4.5, class: "hollow" }),
    cross: () => svg("path", { d: "M3.5 3.5 10.5 10.5M10.5 3.5 3.5 10.5", class: "hollow" }),
    halo: () => svg("circle", { cx: 7, cy: 7, r: 5.5, class: "hollow" }),
  }[shape]();
  return svg("svg", { width: 14, height: 14, viewBox: "0 0 14 14", "aria-hidden": "true", class: `tone-of-${tone}` }, drawn);
}
