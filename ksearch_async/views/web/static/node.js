// An action of the tree: what it says, what was expected and what came of it, and every attempt at it.

import { get, runPath } from "./api.js";
import { attemptView } from "./attempts.js";
import { listing } from "./code.js";
import { element, fill, isolated, setText } from "./dom.js";
import { count, counted, legibleLine, significant, speedup, words, worth } from "./format.js";
import { address } from "./routes.js";
import { nodeSteering, refusalOf } from "./steer.js";
import { facts, fateWord } from "./verdicts.js";

const READ_AGAIN_MS = 400; // after the run brought something new for the node
const TYPING = "input, select, textarea, .listing-page, canvas";

export async function open(root, context) {
  const { run: runId, node: nodeId } = context.parameters;
  context.title(`${nodeId} of ${runId}`);
  fill(root, element("p.quiet-text", {}, "Asking for the action …"));
  const store = context.run();
  await store.ready;
  const page = new NodePage(root, context, store, runId, nodeId);
  await page.read();
  return page.watch();
}

class NodePage {
  #attempts = new Map();
  #timer = 0;
  #seen = "";

  constructor(root, context, store, runId, nodeId) {
    Object.assign(this, { context, store, runId, nodeId });
    this.top = element("header.node-top");
    this.about = element("div.node-about");
    this.list = element("div.attempts");
    this.steering = nodeSteering(context, nodeId, () => store.latest.node(nodeId));
    const canSteer = !refusalOf(context.server, store.latest.totals, store.length > 0);
    const steer = element("details.panel", { open: canSteer }, element("summary", {}, "Steer"), this.steering.element);
    this.parts = [this.top, this.about, steer, element("h2", {}, "Attempts"), this.list];
    this.root = root;
  }

  async read() {
    const { node, attempts } = await get(runPath(this.runId, "nodes", this.nodeId), { signal: this.context.signal });
    this.node = node;
    if (this.top.parentElement !== this.root) fill(this.root, this.parts);
    this.#drawTop();
    this.#drawAbout();
    this.#drawAttempts(attempts);
  }

  watch() {
    const stop = this.store.subscribe(() => this.#changed());
    const onKey = (event) => this.#key(event);
    document.addEventListener("keydown", onKey);
    return () => {
      stop();
      clearTimeout(this.#timer);
      document.removeEventListener("keydown", onKey);
      this.steering.close();
    };
  }

  #changed() {
    const { latest } = this.store;
    const seen = JSON.stringify([
      latest.node(this.nodeId),
      latest.attempts().filter((one) => one.node_id === this.nodeId).length,
      latest.jobs().filter((job) => job.node_id === this.nodeId && job.ended_s != null).length,
    ]);
    if (seen === this.#seen) return;
    this.#seen = seen;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.read().catch((error) => this.#trouble(error)), READ_AGAIN_MS);
  }

  #trouble(error) {
    if (this.context.signal.aborted) return;
    setText(this.lost, `What is shown may be old: ${error.message}`);
    this.lost.hidden = false;
  }

  #drawTop() {
    const nodes = this.store.latest.nodes();
    const at = nodes.findIndex((node) => node.node_id === this.nodeId);
    const step = (node, text, key) =>
      node
        ? element(
            "a.button",
            {
              href: address("run", this.runId, "node", node.node_id),
              title: `${legibleLine(node.title, 100)} (key ${key})`,
              rel: text === "next" ? "next" : "prev",
            },
            text === "next" ? `${node.node_id} →` : `← ${node.node_id}`,
          )
        : element("span.button.off", { "aria-hidden": "true" }, text === "next" ? "→" : "←");
    this.before = nodes[at - 1];
    this.after = nodes[at + 1];
    this.lost = element("p.trouble", { role: "alert", hidden: true });
    fill(
      this.top,
      element(
        "nav.crumbs",
        { "aria-label": "Lineage" },
        this.#ancestors().map((node, at) => [
          at > 0 && " › ",
          element(
            "a",
            { href: address("run", this.runId, "node", node.node_id), title: node.node_id },
            isolated(node.node_id === "n0" ? "the reference" : legibleLine(node.title, 120)),
          ),
        ]),
      ),
      element(
        "div.row.node-title",
        {},
        element(
          "h2.title",
          {},
          element("span.node-id", {}, this.nodeId),
          " ",
          isolated(this.nodeId === "n0" ? "The reference" : legibleLine(this.node.title, 400)),
        ),
        element("span.spacer"),
        element("span.steps", {}, step(this.before, "previous", "←"), step(this.after, "next", "→")),
      ),
      this.lost,
    );
  }

  #ancestors() {
    const { latest } = this.store;
    const path = [];
    for (let node = latest.node(this.node.parent_id); node && path.length < 1000; node = latest.node(node.parent_id))
      path.unshift(node);
    return path;
  }

  #drawAbout() {
    const { node } = this;
    const { description } = node;
    fill(
      this.about,
      element(
        "section.panel",
        { "aria-label": "Action" },
        element("h2", {}, "Action"),
        description && description !== node.title
          ? element("div.prose", {}, listing(description, { label: "Description" }))
          : element(
              "p.quiet-text",
              {},
              this.nodeId === "n0"
                ? "Stands for the program that all candidates are compared with."
                : "Its title says it all.",
            ),
        this.#relatives(),
      ),
      element(
        "section.panel",
        { "aria-label": "Beliefs" },
        element("h2", {}, "Beliefs and what came of it"),
        this.#beliefs(),
      ),
    );
  }

  #relatives() {
    const link = (nodeId) => {
      const known = this.store.latest.node(nodeId);
      return element(
        "a",
        { href: address("run", this.runId, "node", nodeId) },
        `${nodeId} `,
        isolated(legibleLine(known?.title ?? "", 60)),
        known?.best ? ` ${worth(known.best)}` : "",
      );
    };
    const { node } = this;
    const children = node.children ?? [];
    return [
      node.second_id && element("p", {}, "Merges with ", link(node.second_id)),
      node.earlier && element("p", {}, "In the run it comes from: ", isolated(legibleLine(node.earlier, 300))),
      children.length > 0 &&
        element(
          "div.children",
          {},
          element("h3", {}, counted(children.length, "action below it", "actions below it")),
          element(
            "ul",
            {},
            children.map((child) => element("li", {}, link(child))),
          ),
        ),
    ];
  }

  #beliefs() {
    const { node } = this;
    const measured = node.best?.speedup != null ? node.best.speedup / (node.base?.speedup ?? 1) : null;
    const expected = node.expected_then ?? node.expected_gain;
    return facts([
      [
        "state",
        element(
          "span",
          {},
          words(node.state),
          node.in_flight ? `, ${counted(node.in_flight, "branch", "branches")} at work` : "",
          node.spent ? ", gets nothing further" : "",
        ),
      ],
      ["best", node.best ? element("strong", {}, worth(node.best)) : null],
      ["V", (node.priority ?? 0).toFixed(2)],
      ["difficulty", node.difficulty ?? 1],
      ["gain expected", expected != null ? `${significant(expected)}x over what it builds on` : null],
      [
        "gain measured",
        measured != null
          ? element(
              "span",
              { class: measured >= (expected ?? 1) ? "good" : "warn" },
              `${significant(measured)}x over ${node.base ? `${speedup(node.base.speedup)} before it` : "the reference"}`,
            )
          : null,
      ],
      ["evaluations", count(node.rounds ?? 0)],
      [
        "tries",
        node.tries
          ? `${count(node.tries)}${node.failures ? `, ${count(node.failures)} without a correct candidate` : ""}`
          : null,
      ],
      [
        "attempts",
        node.fates?.length
          ? element(
              "span.fate-counts",
              {},
              node.fates.map(([fate, times]) => [fateWord(fate, `${words(fate)} ${times}`), " "]),
            )
          : null,
      ],
      ["origin", node.origin && node.origin !== "model" ? words(node.origin) : null],
      ["given up", node.prune_reason ? legibleLine(node.prune_reason, 400) : null],
      ["ordered", this.#orders()],
    ]);
  }

  #orders() {
    const { node } = this;
    const said = [];
    if (node.pinned) said.push("pinned: chosen next");
    if (node.boost) said.push(`${node.boost > 0 ? "+" : ""}${node.boost.toFixed(2)} on its score`);
    if (node.forbidden != null && node.forbidden !== false)
      said.push(`forbidden${node.forbidden ? `: ${legibleLine(String(node.forbidden), 200)}` : ""}`);
    else if (this.store.latest.node(this.nodeId)?.forbidden) said.push("forbidden with an action above it");
    return said.join("; ");
  }

  #drawAttempts(attempts) {
    if (!attempts.length) {
      fill(
        this.list,
        element(
          "p.quiet-text",
          {},
          this.nodeId === "n0" ? "The reference is not written by a coder." : "No coder has answered for it yet.",
        ),
      );
      this.#attempts.clear();
      return;
    }
    const views = attempts.map((told) => {
      const said = JSON.stringify([told.fate, told.outcome, told.round, told.candidate_id]);
      const known = this.#attempts.get(told.number);
      if (known?.said === said) return known.view;
      const terms = {
        runId: this.runId,
        baseId: told.base_id ?? "",
        isOpen: known ? known.view.open : told.number === this.#worthALook(attempts),
        signal: this.context.signal,
      };
      const view = attemptView(told, terms);
      this.#attempts.set(told.number, { said, view });
      return view;
    });
    fill(this.list, views);
  }

  /** The attempt that is open at first: the one that brought the best candidate, else the latest. */
  #worthALook(attempts) {
    const bestId = this.node.best?.candidate_id;
    return ((bestId && attempts.find((told) => told.candidate_id === bestId)) || attempts.at(-1)).number;
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest?.(TYPING)) return;
    const target = event.key === "ArrowLeft" ? this.before : event.key === "ArrowRight" ? this.after : null;
    if (!target) return;
    event.preventDefault();
    this.context.go("run", this.runId, "node", target.node_id);
  }
}
