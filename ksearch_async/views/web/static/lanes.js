// The timeline of a run: who worked on what, and who waited for whom. A tab of the run page, or a page of its own.

import { draw, labelOf, placed, spanAt } from "./lane_canvas.js";
import { coveredS, lanesOf } from "./lane_layout.js";
import { element, fill, isolated } from "./dom.js";
import { count, duration, legibleLine, share, words } from "./format.js";
import { address } from "./routes.js";
import { color, onThemeChange } from "./theme.js";

const LEAST_VIEW_S = 0.05;
const REDRAW_MS = 500; // so often at most, while the run goes on
const GOOD = new Set(["written", "built", "edits", "measured", "scored"]);
const KEYS = "Arrow keys pan, + and − zoom, 0 shows all; [ and ] choose a job, Enter opens its action.";

export async function open(root, context) {
  const store = context.run();
  fill(root, element("p.quiet-text", {}, "Asking for the jobs …"));
  await store.ready;
  context.title(`Timeline of ${store.runId}`);
  const timeline = lanesView(store, context);
  fill(root, timeline.element);
  timeline.show();
  return () => timeline.close();
}

/** Returns `{element, show, close}`; `show` is called once the element is in the page. */
export function lanesView(store, context) {
  const view = new Timeline(store, context);
  return { element: view.box, show: () => view.start(), close: () => view.close() };
}

class Timeline {
  #closing = [];
  #view = null; // {from, to} in seconds; null: all of the run
  #frame = 0;
  #timer = 0;
  #chosen = "";
  #pointers = new Map();

  constructor(store, context) {
    Object.assign(this, { store, context });
    this.canvas = element("canvas.lanes", { tabindex: 0, role: "img", "aria-label": `Timeline of jobs. ${KEYS}` });
    this.tip = element("div.lane-tip", { hidden: true });
    this.stage = element("div.lane-stage", {}, this.canvas, this.tip);
    this.table = element("tbody");
    this.said = element("p.quiet-text", { role: "status" });
    const button = (text, label, act) => element("button", { type: "button", "aria-label": label, onclick: act }, text);
    this.box = element(
      "section.timeline",
      {},
      element(
        "div.row",
        {},
        button("+", "Zoom in", () => this.#zoom(0.5)),
        button("−", "Zoom out", () => this.#zoom(2)),
        button("Whole run", "Show the whole run", () => this.#look(null)),
        legend(),
      ),
      this.said,
      this.stage,
      element("p.hint.keys", {}, KEYS),
      element("h2", {}, "Who waited"),
      element(
        "div.scroll",
        {},
        element(
          "table.lane-sums",
          {},
          element(
            "thead",
            {},
            element(
              "tr",
              {},
              ["lane", "jobs", "at work", "waited for", "utilisation"].map((head, at) =>
                element(at ? "th.number" : "th", { scope: "col" }, head),
              ),
            ),
          ),
          this.table,
        ),
      ),
      element(
        "p.hint",
        {},
        "“At work” adds up what the workers say that their jobs took; “waited for” is the rest of the time from asking to answer: queues and transport. Utilisation is the share of the run in which at least one job was at work.",
      ),
    );
  }

  start() {
    const listen = (target, name, act, options) => {
      target.addEventListener(name, act, options);
      this.#closing.push(() => target.removeEventListener(name, act, options));
    };
    const resized = new ResizeObserver(() => this.#ask());
    resized.observe(this.canvas);
    this.#closing.push(
      () => resized.disconnect(),
      onThemeChange(() => this.#ask()),
      this.store.subscribe(() => this.#later()),
    );
    listen(this.canvas, "pointerdown", (event) => this.#down(event));
    listen(this.canvas, "pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel", "pointerleave"])
      listen(this.canvas, name, (event) => this.#up(event));
    listen(this.canvas, "wheel", (event) => this.#wheel(event), { passive: false });
    listen(this.canvas, "dblclick", (event) => this.#zoom(0.4, this.#secondAt(event.offsetX)));
    listen(this.canvas, "keydown", (event) => this.#key(event));
    this.#read();
  }

  close() {
    for (const end of this.#closing) end();
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }

  #later() {
    this.#timer ||= setTimeout(() => {
      this.#timer = 0;
      this.#read();
    }, REDRAW_MS);
  }

  #read() {
    const { latest } = this.store;
    this.jobs = latest.jobs();
    const { elapsed_s: elapsed, standing } = latest.totals;
    this.endS = Math.max(
      elapsed,
      ...[0],
      this.jobs.reduce((most, job) => Math.max(most, job.ended_s ?? job.began_s ?? 0), 0),
      0.1,
    );
    this.nowS = standing === "finished" ? null : this.endS;
    this.lanes = lanesOf(this.jobs, this.endS);
    this.places = placed(this.lanes);
    const waiting = this.lanes.filter((lane) => lane.underWay).reduce((sum, lane) => sum + lane.jobs.length, 0);
    fill(
      this.said,
      this.jobs.length
        ? `${count(this.jobs.length)} jobs in ${duration(this.endS)}${waiting ? `, ${count(waiting)} under way` : ""}.`
        : "Nothing was asked of anybody yet.",
    );
    fill(
      this.table,
      this.lanes.filter((lane) => !lane.underWay).map((lane) => this.#sum(lane)),
    );
    this.#ask();
  }

  #sum(lane) {
    return element(
      "tr",
      {},
      element("td", {}, isolated(labelOf(lane))),
      element("td.number", {}, count(lane.jobs.length)),
      element("td.number", {}, duration(lane.busy_s)),
      element("td.number", {}, duration(lane.waited_s)),
      element("td.number", {}, share(coveredS(lane.jobs) / this.endS)),
    );
  }

  #ask() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (this.canvas.clientWidth)
        draw(this.canvas, this.places, this.#range(), paint(), { chosen: this.#chosen, timeText, nowS: this.nowS });
    });
  }

  #range() {
    return this.#view ?? { from: 0, to: this.endS * 1.01 };
  }

  #look(view) {
    if (view) {
      const most = this.endS * 1.05;
      const width = Math.min(Math.max(view.to - view.from, LEAST_VIEW_S), most);
      const from = Math.min(Math.max(view.from, -0.02 * most), Math.max(0, most - width));
      this.#view = { from, to: from + width };
    } else {
      this.#view = null;
    }
    this.#ask();
  }

  #zoom(factor, around) {
    const { from, to } = this.#range();
    const middle = around ?? (from + to) / 2;
    this.#look({ from: middle - (middle - from) * factor, to: middle + (to - middle) * factor });
  }

  #secondAt(x) {
    const { from, to } = this.#range();
    return from + (x / this.canvas.clientWidth) * (to - from);
  }

  #down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event.offsetX);
    this.pressed = { x: event.offsetX, y: event.offsetY };
  }

  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (before === undefined) {
      this.#hover(event.offsetX, event.offsetY);
      return;
    }
    const { from, to } = this.#range();
    const perPixel = (to - from) / this.canvas.clientWidth;
    const others = [...this.#pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
    this.#pointers.set(event.pointerId, event.offsetX);
    if (others.length) {
      const apart = Math.abs(before - others[0]);
      const now = Math.abs(event.offsetX - others[0]);
      if (apart > 8 && now > 8) this.#zoom(apart / now, this.#secondAt(others[0]));
    } else {
      const shift = (before - event.offsetX) * perPixel;
      if (shift) this.#look({ from: from + shift, to: to + shift });
    }
  }

  #up(event) {
    const wasDown = this.#pointers.delete(event.pointerId);
    if (event.type === "pointerleave") this.tip.hidden = true;
    const moved = this.pressed && Math.hypot(event.offsetX - this.pressed.x, event.offsetY - this.pressed.y) > 4;
    if (wasDown && event.type === "pointerup" && !moved)
      this.#open(spanAt(this.places, this.#range(), this.canvas.clientWidth, event.offsetX, event.offsetY)?.job);
  }

  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return; // the page scrolls
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) return this.#zoom(Math.exp(event.deltaY / 200), this.#secondAt(event.offsetX));
    const { from, to } = this.#range();
    const shift = (event.deltaX / this.canvas.clientWidth) * (to - from);
    return this.#look({ from: from + shift, to: to + shift });
  }

  #key(event) {
    const { from, to } = this.#range();
    const step = (to - from) / 8;
    const acts = {
      ArrowLeft: () => this.#look({ from: from - step, to: to - step }),
      ArrowRight: () => this.#look({ from: from + step, to: to + step }),
      "+": () => this.#zoom(0.7),
      "=": () => this.#zoom(0.7),
      "-": () => this.#zoom(1.4),
      0: () => this.#look(null),
      "[": () => this.#choose(-1),
      "]": () => this.#choose(1),
      Enter: () => this.#open(this.jobs.find((job) => job.job_id === this.#chosen)),
    };
    if (event.ctrlKey || event.metaKey || event.altKey || !acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  #choose(step) {
    const at = this.jobs.findIndex((job) => job.job_id === this.#chosen);
    const job =
      this.jobs[at < 0 ? (step > 0 ? 0 : this.jobs.length - 1) : (at + step + this.jobs.length) % this.jobs.length];
    if (!job) return;
    this.#chosen = job.job_id;
    const { from, to } = this.#range();
    const end = job.ended_s ?? this.endS;
    if (job.began_s < from || end > to)
      this.#look({ from: job.began_s - (to - from) / 2, to: job.began_s + (to - from) / 2 });
    this.context.announce(this.#words(job).join(", "));
    this.#ask();
  }

  #open(job) {
    if (job) this.context.go("run", this.store.runId, "node", job.node_id);
  }

  #hover(x, y) {
    const span = spanAt(this.places, this.#range(), this.canvas.clientWidth, x, y);
    this.canvas.classList.toggle("over", Boolean(span));
    this.tip.hidden = !span;
    if (!span) return;
    fill(
      this.tip,
      this.#words(span.job).map((line) => element("div", {}, isolated(line))),
    );
    this.tip.style.left = `${Math.max(0, Math.min(x + 12, this.canvas.clientWidth - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${y + 16}px`;
  }

  #words(job) {
    const title = this.store.latest.node(job.node_id)?.title ?? "";
    const took = (job.ended_s ?? this.endS) - job.began_s;
    const busy = job.busy_s == null || job.ended_s == null ? null : Math.min(job.busy_s, took);
    return [
      `${job.verb} ${job.node_id}${title && job.node_id !== "n0" ? `: ${legibleLine(title, 70)}` : ""}`,
      job.ended_s == null
        ? `under way for ${duration(took)}`
        : `${words(job.result)}, ${busy == null ? duration(took) : `at work ${duration(busy)}, waited ${duration(took - busy)}`}`,
      [job.unit, job.worker]
        .filter(Boolean)
        .map((text) => legibleLine(text, 60))
        .join(" · "),
    ].filter(Boolean);
  }
}

function legend() {
  const item = (kind, text) => element("span.lane-key", {}, element(`span.swatch.${kind}`), text);
  return element(
    "span.row.lane-legend",
    { "aria-hidden": "true" },
    item("good-work", "at work"),
    item("failed-work", "at work, nothing usable"),
    item("waiting", "asked for, waiting"),
  );
}

function paint() {
  const fates = {};
  const of = (job) => {
    if (job.ended_s == null) return color("in-flight");
    if (GOOD.has(job.result)) return (fates.good ??= color("fate-measured"));
    const kind =
      job.result === "lost" || job.result === "dropped" ? "none" : job.result === "refused" ? "unusable" : job.result;
    return (fates[kind] ??= color(`fate-${kind}`) || color("fate-none"));
  };
  return {
    text: color("text"),
    muted: color("text-quiet"),
    grid: color("line"),
    waiting: color("line-strong"),
    now: color("in-flight"),
    of,
  };
}

function timeText(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(2))} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours
    ? `${hours}:${String(minutes).padStart(2, "0")} h`
    : `${minutes}:${String(whole % 60).padStart(2, "0")} min`;
}
