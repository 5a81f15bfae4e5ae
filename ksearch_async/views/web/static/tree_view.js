// The search tree on a canvas: what is drawn is kept and moved, and drawn anew only when it changed or ran out.

import { element, fill } from "./dom.js";
import { lookOf, shareOfBest, stateWord, worthRange } from "./fates.js";
import { counted, interval, legibleLine, significant, words, worth } from "./format.js";
import { isStill, onThemeChange } from "./theme.js";
import { between, fitted, moved, zoomed } from "./tree_camera.js";
import { listen } from "./tree_input.js";
import { layoutOf, pathTo } from "./tree_layout.js";
import { outline, paintTree, radiusOf, readPalette, spotAt } from "./tree_paint.js";

const MARGIN = 240; // px that are drawn beyond each side, for panning
const SHARP_AFTER_MS = 120; // a stretched picture is drawn anew once zooming rests
const PULSE_MS = 1600;
const PULSE_FRAME_MS = 80;
const REACH = 14; // px around an action in which it is pointed at
const LONGEST_TITLE = 300;
const appearances = new WeakMap();

/** Draws a run's tree. `element` goes into the page; `close` stops everything. */
export class TreeView {
  #ending = new AbortController();
  #spots = [];
  #busy = [];
  #isOverlayEmpty = false;
  #byId = new Map();
  #layout = { places: new Map(), depth: 0, breadth: 0 };
  #laidOut = 0;
  #bestId = "";
  #camera = { scaleX: 1, scaleY: 1, left: 0, top: 0 };
  #drawn = null;
  #isFitted = true;
  #size = [0, 0];
  #selected = "";
  #pointed = "";
  #todo = new Set();
  #frame = 0;
  #pulseTimer = 0;
  #sharpTimer = 0;
  #palette = readPalette();
  #onOpen;
  #announce;
  #watcher;
  #forgetTheme;

  /**
   * @param {Object} terms
   * @param {(nodeId: string) => void} terms.onOpen
   * @param {(text: string) => void} terms.announce
   */
  constructor({ onOpen, announce }) {
    this.#onOpen = onOpen;
    this.#announce = announce;
    this.base = element("canvas.tree-base", { "aria-hidden": "true" });
    this.overlay = element("canvas.tree-overlay", {
      tabindex: 0,
      role: "application",
      "aria-label": "Search tree. Arrows move between actions, Enter opens one, plus and minus zoom, 0 shows all.",
    });
    this.tip = element("div.tree-tip", { hidden: true });
    this.element = element("div.tree-box", {}, this.base, this.overlay, this.tip);
    listen(this.overlay, this.#acts(), this.#ending.signal);
    this.overlay.addEventListener("blur", () => this.#point(""), { signal: this.#ending.signal });
    this.#watcher = new ResizeObserver(() => this.#resize());
    this.#watcher.observe(this.element);
    this.#forgetTheme = onThemeChange(() => {
      this.#palette = readPalette();
      this.#need("base");
    });
  }

  /**
   * Shows a moment of a run.
   *
   * @param {Object} moment whose nodes are drawn.
   * @param {Array} allNodes every `NodeView` that is known of the run: their places stay while time runs.
   */
  show(moment, allNodes) {
    if (allNodes.length !== this.#laidOut) {
      this.#layout = layoutOf(allNodes);
      this.#laidOut = allNodes.length;
      if (this.#isFitted) this.#camera = fitted(this.#layout, ...this.#size);
    }
    this.#makeScene(moment);
    this.#need("base");
  }

  /** Shows all of the tree, and keeps doing so while it grows. */
  fit() {
    this.#isFitted = true;
    this.#camera = fitted(this.#layout, ...this.#size);
    this.#need("base");
  }

  /** Zooms at the middle. */
  zoom(factor) {
    this.#zoom(factor, null, null);
  }

  /** How many actions are drawn, and where an action stands (px in the box): for tests and measurements. */
  get drawn() {
    return { count: this.#spots.length, placeOf: (id) => this.#byId.has(id) && spotAt(this.#byId.get(id), this.#camera) };
  }

  close() {
    this.#ending.abort();
    this.#watcher.disconnect();
    this.#forgetTheme();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#pulseTimer);
    clearTimeout(this.#sharpTimer);
  }

  #makeScene(moment) {
    const nodes = moment.nodes();
    const scored = moment.head?.scored ?? false;
    const range = worthRange(nodes, scored);
    const mark = moment.best();
    this.#bestId = mark?.node_id ?? "";
    const path = new Set(pathTo(this.#bestId, (id) => moment.node(id)?.parent_id ?? ""));
    this.#byId = new Map();
    this.#spots = [];
    for (const node of nodes) {
      const place = this.#layout.places.get(node.node_id);
      if (!place) continue;
      const parent = this.#byId.get(node.parent_id) ?? null;
      const isBest = node.node_id === this.#bestId;
      const spot = {
        id: node.node_id,
        ...place,
        ...appearance(node, scored),
        node,
        parent,
        scored,
        size: shareOfBest(isBest ? mark : node.best, range),
        isLeaf: true,
        isLast: place.x === this.#layout.depth,
        isOnPath: path.has(node.node_id),
        isBest,
      };
      if (isBest) spot.told = worth(mark, scored); // its branch may be under way still, and its own best not be told
      if (parent) parent.isLeaf = false;
      this.#byId.set(spot.id, spot);
      this.#spots.push(spot);
    }
    this.#busy = moment.totals.standing === "finished" ? [] : this.#spots.filter((spot) => spot.node.in_flight);
  }

  #acts() {
    return {
      pan: (dx, dy) => this.#move(moved(this.#camera, dx, dy)),
      zoom: (factor, x, y) => this.#zoom(factor, x, y),
      point: (x, y) => this.#point(x === null ? "" : (this.#nearest(x, y)?.id ?? "")),
      click: (x, y) => {
        const spot = this.#nearest(x, y);
        if (spot) this.#onOpen(spot.id);
      },
      key: (name) => this.#key(name),
    };
  }

  #key(name) {
    const spot = this.#byId.get(this.#selected);
    if (name === "fit") this.fit();
    else if (name === "leave") this.#select(null);
    else if (name === "open" && spot) this.#onOpen(spot.id);
    else if (name === "best") this.#select(this.#byId.get(this.#bestId));
    else if (name === "first" || !spot) this.#select(this.#spots[0]);
    else if (name === "left") this.#select(spot.parent);
    else if (name === "right") this.#select(this.#spots.find((other) => other.parent === spot));
    else if (name === "up" || name === "down") this.#select(this.#beside(spot, name === "up" ? -1 : 1));
  }

  #beside(spot, way) {
    const level = this.#spots.filter((other) => other.x === spot.x && (other.y - spot.y) * way > 0);
    return level.sort((one, other) => (one.y - other.y) * way)[0];
  }

  #select(spot) {
    if (spot === undefined) return;
    this.#selected = spot?.id ?? "";
    if (spot) {
      this.#bringIntoView(spot);
      this.#announce(`${spot.id}, ${spot.title}: ${spot.told}`);
    }
    this.#need("overlay");
    this.#showTip();
  }

  #bringIntoView(spot) {
    const [x, y] = spotAt(spot, this.#camera);
    const [width, height] = this.#size;
    const byX = Math.max(30 - x, 0) + Math.min(width - 60 - x, 0);
    const byY = Math.max(30 - y, 0) + Math.min(height - 30 - y, 0);
    if (byX || byY) this.#move(moved(this.#camera, byX, byY));
  }

  #zoom(factor, x, y) {
    const [width, height] = this.#size;
    const least = fitted(this.#layout, width, height);
    this.#move(zoomed(this.#camera, factor, x ?? width / 2, y ?? height / 2, least));
  }

  #move(camera) {
    this.#isFitted = false;
    this.#camera = camera;
    this.#need("camera");
  }

  #point(id) {
    if (id === this.#pointed) return;
    this.#pointed = id;
    this.overlay.style.cursor = id ? "pointer" : "";
    this.#need("overlay");
    this.#showTip();
  }

  #nearest(x, y) {
    let found = null;
    let least = REACH;
    for (const spot of this.#spots) {
      const [atX, atY] = spotAt(spot, this.#camera);
      const away = Math.hypot(atX - x, atY - y) - radiusOf(spot, this.#camera);
      if (away < least) [found, least] = [spot, away];
    }
    return found;
  }

  #showTip() {
    const spot = this.#byId.get(this.#pointed || this.#selected);
    this.tip.hidden = !spot;
    if (!spot) return;
    fill(this.tip, tipOf(spot));
    const [x, y] = spotAt(spot, this.#camera);
    const [width, height] = this.#size;
    const { offsetWidth, offsetHeight } = this.tip;
    const left = x + 14 + offsetWidth > width ? x - 14 - offsetWidth : x + 14;
    const top = y + 14 + offsetHeight > height ? y - 14 - offsetHeight : y + 14;
    this.tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.#size = [width, height];
    sized(this.base, width + 2 * MARGIN, height + 2 * MARGIN, ratio);
    sized(this.overlay, width, height, ratio);
    if (this.#isFitted) this.#camera = fitted(this.#layout, width, height);
    this.#need("base");
  }

  #need(what) {
    this.#todo.add(what);
    if (!this.#frame && !this.#ending.signal.aborted) this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    if (!this.#size[0]) return;
    const moving = this.#drawn && !this.#todo.has("base") ? between(this.#drawn, this.#camera) : null;
    if (moving && this.#isCovered(moving)) this.#stretch(moving);
    else if (this.#todo.has("base") || this.#todo.has("camera")) this.#drawBase();
    this.#drawOverlay();
    if (this.#todo.has("camera")) this.#showTip();
    this.#todo.clear();
  }

  #isCovered({ scaleX, scaleY, x, y }) {
    const [width, height] = this.#size;
    const isSame = scaleX === 1 && scaleY === 1;
    return !isSame || (Math.abs(x) <= MARGIN && Math.abs(y) <= MARGIN && width > 0 && height > 0);
  }

  /** Moves what is drawn; after zooming it is drawn anew as soon as that rests. */
  #stretch({ scaleX, scaleY, x, y }) {
    const left = x - MARGIN * scaleX + MARGIN;
    const top = y - MARGIN * scaleY + MARGIN;
    this.base.style.transform = `translate(${left}px, ${top}px) scale(${scaleX}, ${scaleY})`;
    if (scaleX === 1 && scaleY === 1) return;
    clearTimeout(this.#sharpTimer);
    this.#sharpTimer = setTimeout(() => this.#need("base"), SHARP_AFTER_MS);
  }

  #drawBase() {
    clearTimeout(this.#sharpTimer);
    const canvas = this.base.getContext("2d");
    const [width, height] = this.#size;
    const camera = moved(this.#camera, MARGIN, MARGIN);
    canvas.clearRect(0, 0, width + 2 * MARGIN, height + 2 * MARGIN);
    const box = { left: 0, top: 0, right: width + 2 * MARGIN, bottom: height + 2 * MARGIN };
    paintTree(canvas, { spots: this.#spots }, camera, this.#palette, box);
    this.base.style.transform = "none";
    this.#drawn = this.#camera;
  }

  #drawOverlay() {
    const canvas = this.overlay.getContext("2d");
    const marked = [this.#selected, this.#pointed].map((id) => this.#byId.get(id)).filter(Boolean);
    const isEmpty = !marked.length && !this.#busy.length;
    if (isEmpty && this.#isOverlayEmpty) return; // whatever is drawn on, and be it nothing, the browser copies anew
    this.#isOverlayEmpty = isEmpty;
    canvas.clearRect(0, 0, ...this.#size);
    ringed(canvas, marked, this.#camera, this.#palette.focus, 5);
    const busy = this.#busy;
    const phase = isStill() ? 0.4 : (performance.now() % PULSE_MS) / PULSE_MS;
    ringed(canvas, busy, this.#camera, this.#palette["in-flight"], 2);
    canvas.globalAlpha = 1 - phase;
    ringed(canvas, busy, this.#camera, this.#palette["in-flight"], 2 + 7 * phase);
    canvas.globalAlpha = 1;
    if (busy.length && !isStill()) this.#pulseLater();
  }

  #pulseLater() {
    clearTimeout(this.#pulseTimer);
    this.#pulseTimer = setTimeout(() => this.#need("overlay"), PULSE_FRAME_MS);
  }
}

function sized(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
}

function ringed(canvas, spots, camera, tone, gap) {
  if (!spots.length) return;
  const path = new Path2D();
  for (const spot of spots) {
    const [x, y] = spotAt(spot, camera);
    outline(path, "ring", x, y, radiusOf(spot, camera) + gap);
  }
  canvas.lineWidth = 1.5;
  canvas.strokeStyle = tone;
  canvas.stroke(path);
}

/** How an action looks and what is written beside it; kept, because time lapses draw the same ones again and again. */
function appearance(node, scored) {
  let known = appearances.get(node);
  if (!known) {
    const isFaint = node.state === "pruned" || Boolean(node.forbidden);
    known = { ...lookOf(node), isFaint, title: legibleLine(node.title, LONGEST_TITLE), told: toldOf(node, scored) };
    appearances.set(node, known);
  }
  return known;
}

/** What an action is worth, or what it came to. */
function toldOf(node, scored) {
  if (!node.parent_id) return "reference";
  if (node.best) return worth(node.best, scored);
  const fates = (node.fates ?? []).map(([fate, times]) => (times > 1 ? `${times}x ${words(fate)}` : words(fate)));
  return fates.join(", ") || stateWord(node);
}

function tipOf({ node, scored, title }) {
  const best = node.best;
  const fates = (node.fates ?? []).map(([fate, times]) => `${times}x ${words(fate)}`).join(", ");
  const rows = [
    ["state", stateWord(node) + (node.prune_reason ? `: ${legibleLine(node.prune_reason, 120)}` : "")],
    ["best", best && `${worth(best, scored)} ${scored ? "" : interval(best.credit, best.speedup_high)}`],
    ["V", node.parent_id && significant(node.priority ?? 0)],
    ["rounds", counted(node.rounds ?? 0, "round", "rounds")],
    ["attempts", fates],
  ];
  return [
    element("strong", {}, element("span.quiet-text", {}, `${node.node_id} `), element("bdi", {}, title)),
    element("dl", {}, rows.filter(([, told]) => told).map(([name, told]) => [element("dt", {}, name), element("dd", {}, told)])),
  ];
}
