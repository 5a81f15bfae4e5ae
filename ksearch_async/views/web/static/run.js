// The page of one run: its figures, its tree, its curve and its latest lines, now or as they were.

import { Curve } from "./curve.js";
import { element, fill } from "./dom.js";
import { legend } from "./legend.js";
import { noteList } from "./notes.js";
import { Player } from "./player.js";
import { runHeader } from "./run_header.js";
import { refusalOf, runSteering } from "./steer.js";
import { TreeView } from "./tree_view.js";
import { treeList } from "./tree_list.js";

const LIVE_MS = 200;

/** See app.js: a view. */
export async function open(root, context) {
  const { run: runId } = context.parameters;
  context.title(runId);
  fill(root, element("p.quiet-text", {}, "Reading the run …"));
  const run = context.run();
  await run.ready;
  const page = new RunPage(run, context);
  fill(root, page.element);
  page.draw();
  return () => page.close();
}

class RunPage {
  #frame = 0;
  #timer = 0;
  #notedAt = 0;
  #legendOf = "";

  constructor(run, context) {
    this.run = run;
    this.player = new Player(run, () => this.#later());
    this.header = runHeader(run.runId);
    this.tree = new TreeView({ onOpen: (nodeId) => context.go("run", run.runId, "node", nodeId), announce: context.announce });
    this.list = treeList(run.runId);
    this.list.element.hidden = true;
    this.curve = new Curve(run);
    this.notes = noteList(run);
    this.steering = runSteering(context);
    this.legend = element("div.legend-box");
    this.element = element("div.run-page", {}, this.header.task, this.header.element, this.#treePanel(), this.#sidePanels(!refusalOf(context.server, run.latest.totals, run.length > 0)));
    this.stop = run.subscribe(() => this.#soon());
    this.element.page = this; // tests and measurements ask it what is known and drawn
  }

  close() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    this.stop();
    this.player.close();
    this.tree.close();
    this.curve.close();
    this.steering.close();
  }

  draw() {
    this.#frame = 0;
    this.player.refresh();
    const { moment } = this.player;
    this.header.show(moment, { isNow: this.player.isNow });
    this.tree.show(moment, this.run.latest.nodes());
    if (!this.list.element.hidden) this.list.show(moment);
    this.curve.show(moment);
    this.#showNotes(moment);
    this.#showLegend();
  }

  /** Draws after updates came, a few times a second: a run may write many more. */
  #soon() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#later();
    }, LIVE_MS);
  }

  #later() {
    if (!this.#frame) this.#frame = requestAnimationFrame(() => this.draw());
  }

  #treePanel() {
    const button = (said, act, terms = {}) => element("button", { type: "button", onclick: act, ...terms }, said);
    this.listButton = button("List", () => this.#toggleList(), { "aria-pressed": "false" });
    const tools = element("div.row.tools", {},
      button("–", () => this.tree.zoom(1 / 1.3), { "aria-label": "Zoom out" }),
      button("+", () => this.tree.zoom(1.3), { "aria-label": "Zoom in" }),
      button("Fit", () => this.tree.fit()),
      this.listButton,
    );
    const top = element("div.panel-top", {}, element("h2", {}, "Search tree"), tools);
    return element("section.panel.tree-panel", { "aria-label": "Search tree" }, top, this.tree.element, this.list.element, this.legend, this.player.element);
  }

  #sidePanels(canSteer) {
    const panel = (title, ...parts) => element("section.panel", { "aria-label": title }, element("h2", {}, title), parts);
    const steer = element("details.panel", { open: canSteer, "aria-label": "Steer" }, element("summary", {}, "Steer"), this.steering.element);
    return element("div.side", {}, panel("Best so far", this.curve.element), steer, panel("What happened", this.notes.element));
  }

  #toggleList() {
    const isList = this.list.element.hidden;
    this.list.element.hidden = !isList;
    this.tree.element.hidden = isList;
    this.legend.hidden = isList;
    this.listButton.setAttribute("aria-pressed", String(isList));
    this.#later();
  }

  /** Lines are for reading: while the run is played they change no faster than can be seen. */
  #showNotes(moment) {
    const now = performance.now();
    if (this.player.isPlaying && now - this.#notedAt < LIVE_MS) return;
    this.#notedAt = now;
    this.notes.show(moment);
  }

  #showLegend() {
    const fates = Object.keys(this.run.latest.totals.fates).sort();
    const said = fates.join();
    if (said === this.#legendOf && this.legend.firstChild) return;
    this.#legendOf = said;
    fill(this.legend, legend(fates));
  }
}
