// Best-so-far against rounds, time or dollars, with every attempt that could be timed as a dot.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { element, setText } from "./dom.js";
import { dollars, duration, significant, speedup, worth } from "./format.js";
import { color, onThemeChange } from "./theme.js";

const AXES = [
  ["round", "Rounds", (value) => String(Math.round(value))],
  ["elapsed_s", "Time", (value) => duration(value).replace(/\.0 s$/, " s")],
  ["cost_usd", "Dollars", dollars],
];
const FAR = 3; // times the best: lines that are farther up are told instead of drawn
const HEIGHT = 230;
const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/** Draws a run's curve. `element` goes into the page; `show(moment)` draws; `close` stops. */
export class Curve {
  #run;
  #plot = null;
  #axis = AXES[0];
  #moment = null;
  #lines = [];
  #points = [];
  #isScored = false;
  #known = null;
  #rangesOf = "";
  #watcher;
  #forgetTheme;

  constructor(run) {
    this.#run = run;
    this.buttons = AXES.map((axis) => element("button", { type: "button", "aria-pressed": String(axis === this.#axis), onclick: () => this.#choose(axis) }, axis[1]));
    this.box = element("div.curve-box");
    this.told = element("p.curve-told.quiet-text");
    this.element = element("div.curve", {}, element("div.row.segments", { role: "group", "aria-label": "Against" }, this.buttons), this.box, this.told);
    this.#watcher = new ResizeObserver(() => this.#resize());
    this.#watcher.observe(this.box);
    this.#forgetTheme = onThemeChange(() => this.#rebuild());
  }

  show(moment) {
    this.#moment = moment;
    const isScored = moment.head?.scored ?? false;
    if (isScored !== this.#isScored) {
      this.#isScored = isScored;
      this.#rebuild();
    }
    const { latest } = this.#run;
    this.buttons[2].disabled = !latest.totals.cost_usd;
    this.#lines = this.#guides(latest);
    if (!this.#plot) this.#rebuild();
    else this.#draw();
  }

  close() {
    this.#watcher.disconnect();
    this.#forgetTheme();
    this.#plot?.destroy();
  }

  #choose(axis) {
    this.#axis = axis;
    AXES.forEach((each, index) => this.buttons[index].setAttribute("aria-pressed", String(each === axis)));
    this.#rebuild();
  }

  /** Lines that speedups are held against: `{y, said}`. */
  #guides(latest) {
    if (this.#isScored) return [];
    const mark = latest.best();
    const lines = [{ y: 1, said: "reference" }];
    if (mark?.speedup && mark.speedup_vs_baseline) lines.push({ y: mark.speedup / mark.speedup_vs_baseline, said: mark.baseline || "baseline" });
    const bound = latest.head?.roofline_us;
    if (bound && mark?.reference_latency_us) lines.push({ y: mark.reference_latency_us / bound, said: "roofline" });
    if (latest.head?.target_speedup) lines.push({ y: latest.head.target_speedup, said: "target" });
    return lines;
  }

  #data() {
    const axis = this.#axis[0];
    const totalsAt = (position) => this.#run.at(position).totals;
    const placeOf = (attempt) => (axis === "round" ? attempt.round : totalsAt(attempt.position)[axis]);
    const steps = this.#moment.marks().map((mark) => ({ x: mark[axis] ?? 0, best: mark.speedup ?? mark.credit, mark }));
    const dots = this.#moment.attempts()
      .filter((attempt) => attempt.worth && attempt.round)
      .map((attempt) => ({ x: placeOf(attempt) ?? 0, dot: attempt.worth.speedup ?? attempt.worth.credit, attempt }));
    const end = this.#moment.totals[axis === "round" ? "rounds" : axis];
    const points = [...dots, ...steps].sort((one, other) => one.x - other.x);
    if (steps.length && end >= steps.at(-1).x) points.push({ x: end, best: steps.at(-1).best });
    this.#points = points;
    return [points.map(({ x }) => x), points.map(({ best }) => best ?? null), points.map(({ dot }) => dot ?? null)];
  }

  /** How far the axes reach: for all of the run that is known, so that they stand still while time runs. */
  #ranges() {
    const key = `${this.#run.length} ${this.#axis[0]}`;
    if (this.#rangesOf !== key) {
      this.#known = this.#findRanges();
      this.#rangesOf = key;
    }
    return this.#known;
  }

  #findRanges() {
    const { latest } = this.#run;
    const axis = this.#axis[0];
    const end = latest.totals[axis === "round" ? "rounds" : axis] || 1;
    const values = [...latest.marks(), ...latest.attempts().map((attempt) => attempt.worth)].filter(Boolean).map((each) => each.speedup ?? each.credit).filter((value) => value !== null && value !== undefined);
    const best = Math.max(...values, this.#isScored ? -Infinity : 1);
    const near = this.#lines.filter(({ y }) => y <= best * FAR).map(({ y }) => y);
    const low = this.#isScored ? Math.min(...values) : 0;
    const high = Math.max(best, ...near);
    const far = this.#lines.filter(({ y }) => y > best * FAR);
    setText(this.told, far.map(({ y, said }) => `${said} at ${speedup(y)}, off the scale`).join("; "));
    if (!Number.isFinite(high) || !Number.isFinite(low)) return { x: [0, end], y: [0, 1] };
    const room = (high - low || Math.abs(high) || 1) * 0.08;
    return { x: [0, end], y: [this.#isScored ? low - room : 0, high + room] };
  }

  #draw() {
    const ranges = this.#ranges();
    this.#plot.batch(() => {
      this.#plot.setData(this.#data(), false);
      this.#plot.setScale("x", { min: ranges.x[0], max: ranges.x[1] });
      this.#plot.setScale("y", { min: ranges.y[0], max: ranges.y[1] });
    });
  }

  #resize() {
    const width = Math.floor(this.box.clientWidth);
    if (!width) return;
    if (!this.#plot) this.#rebuild();
    else if (this.#plot.width !== width) this.#plot.setSize({ width, height: HEIGHT });
  }

  #rebuild() {
    const width = Math.floor(this.box.clientWidth);
    if (!this.#moment || !width) return;
    this.#plot?.destroy();
    this.#plot = new uPlot(this.#options(width), this.#data(), this.box);
    this.#draw();
  }

  #options(width) {
    const [text, line, best, dot] = ["text-quiet", "line", "series-1", "fate-measured"].map(color);
    const axis = { stroke: text, font: FONT, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, gap: 4 };
    const tellY = (value) => (this.#isScored ? significant(value) : `${Number(value.toFixed(2))}x`);
    return {
      width,
      height: HEIGHT,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false, auto: false }, y: { auto: false } },
      axes: [
        { ...axis, size: 26, space: 60, values: (_plot, splits) => splits.map(this.#axis[2]) },
        { ...axis, size: 46, values: (_plot, splits) => splits.map(tellY) },
      ],
      series: [
        {},
        { stroke: best, width: 2, spanGaps: true, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        { stroke: dot, fill: dot, paths: () => null, points: { show: true, size: 4, stroke: dot, fill: dot } },
      ],
      hooks: { draw: [(plot) => this.#drawGuides(plot)], setCursor: [(plot) => this.#tell(plot)] },
    };
  }

  #drawGuides(plot) {
    const { ctx: canvas, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    canvas.save();
    canvas.font = FONT.replace("11px", `${11 * ratio}px`);
    canvas.textAlign = "right";
    canvas.fillStyle = color("text-quiet");
    canvas.lineJoin = "round";
    const last = this.#moment.marks().at(-1);
    const best = last ? plot.valToPos(last.speedup ?? last.credit, "y", true) : Infinity;
    for (const { y, said } of this.#lines) {
      const at = plot.valToPos(y, "y", true);
      if (at < bbox.top || at > bbox.top + bbox.height) continue;
      canvas.strokeStyle = canvas.fillStyle;
      canvas.lineWidth = ratio;
      canvas.setLineDash([4 * ratio, 4 * ratio]);
      canvas.beginPath();
      canvas.moveTo(bbox.left, at);
      canvas.lineTo(bbox.left + bbox.width, at);
      canvas.stroke();
      canvas.setLineDash([]); // a rim of the panel's colour keeps the words apart from dots
      canvas.strokeStyle = color("panel");
      canvas.lineWidth = 4 * ratio;
      const isBelow = best <= at && at - best < 18 * ratio; // the curve runs just above it
      const place = [`${said} ${speedup(y)}`, bbox.left + bbox.width - 4 * ratio, isBelow ? at + 12 * ratio : at - 4 * ratio];
      canvas.strokeText(...place);
      canvas.fillText(...place);
    }
    canvas.restore();
  }

  /** Names what is under the cursor. */
  #tell(plot) {
    const point = this.#points[plot.cursor.idx ?? -1];
    if (!point) return;
    const place = `${this.#axis[1].toLowerCase()} ${this.#axis[2](point.x)}`;
    const of = point.mark ?? point.attempt;
    setText(this.told, of ? `${place}: ${worth(point.mark ?? point.attempt.worth, this.#isScored)} by ${of.node_id}${point.mark ? ", a new best" : ""}` : "");
  }
}
