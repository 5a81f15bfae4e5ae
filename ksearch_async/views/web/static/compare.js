// Several runs beside each other: best-so-far curves with bands over seeds, workloads, fractions, a table.

import { get } from "./api.js";
import { element, fill, isolated } from "./dom.js";
import { count, counted, dollars, duration, legibleLine, shortCount, significant, speedup, words } from "./format.js";
import { plot, toneOf } from "./plots.js";
import { address } from "./routes.js";
import { bandOf, bestOf, curveOf, fractionCurve, gist, groupsOf, namesOf, speedupsOf, worthOf } from "./standings.js";
import { readHistory } from "./store.js";

const AXES = [
  ["round", "rounds", (value) => count(value)],
  [
    "elapsed_s",
    "time",
    (value) => (value >= 120 ? `${significant(value / 60)} min` : `${Number(value.toPrecision(3))} s`),
  ],
  ["cost_usd", "dollars", (value) => dollars(value)],
  ["calls", "model calls", (value) => count(value)],
];
const MOST_RUNS = 24;
const MOST_BARS = 40; // workloads
let axis = "round";

export async function open(root, context) {
  context.title("Compare");
  const wanted = [
    ...new Set(
      (context.parameters.runs ?? "")
        .split(",")
        .map((each) => each.trim())
        .filter(Boolean),
    ),
  ];
  if (wanted.length < 2) {
    fill(root, element("h1", {}, "Compare"), await picker(context, wanted));
    return () => {};
  }
  fill(
    root,
    element("h1", {}, "Compare"),
    element("p.quiet-text", {}, `Reading ${counted(wanted.length, "run", "runs")} …`),
  );
  const { runs, missing } = await readAll(wanted.slice(0, MOST_RUNS), context.signal);
  if (wanted.length > MOST_RUNS)
    missing.push({
      runId: `${wanted.length - MOST_RUNS} more`,
      error: new Error(`${MOST_RUNS} runs at most are compared at once`),
    });
  return new Comparison(root, runs, missing).draw();
}

async function readAll(runIds, signal) {
  const runs = [];
  const missing = [];
  for (const runId of runIds) {
    // one after the other: histories are large, and the search goes first
    try {
      const known = gist((await readHistory(runId, { signal })).updates);
      if (known.head) runs.push({ runId, ...known });
      else missing.push({ runId, error: new Error("it has not begun") });
    } catch (error) {
      if (signal.aborted) throw error;
      missing.push({ runId, error });
    }
  }
  return { runs, missing };
}

async function picker(context, chosen) {
  const { runs } = await get("/api/runs", { signal: context.signal });
  if (runs.length < 2) return element("p.notice", {}, "There are no two runs to compare yet.");
  const box = (row) =>
    element(
      "label.pick",
      {},
      element("input", { type: "checkbox", name: "run", value: row.run_id, checked: chosen.includes(row.run_id) }),
      " ",
      isolated(legibleLine(row.task || row.run_id, 60)),
      " ",
      element("span.run-id", {}, isolated(row.run_id)),
    );
  const submit = (event) => {
    event.preventDefault();
    const picked = new FormData(event.target).getAll("run");
    if (picked.length > 1) context.go("compare", picked.join(","));
  };
  return element(
    "form.panel.picks",
    { onsubmit: submit },
    element("p", {}, "Choose two runs or more."),
    runs.slice(0, 100).map(box),
    element("button", { type: "submit" }, "Compare"),
  );
}

class Comparison {
  #closing = [];

  constructor(root, runs, missing) {
    Object.assign(this, { root, runs, missing });
    this.groups = [...groupsOf(runs).values()];
    this.names = namesOf(this.groups, runs).map((name) => legibleLine(name, 120));
    this.isScored = runs.some((run) => run.head.scored);
  }

  draw() {
    const tasks = new Set(this.runs.map((run) => `${run.head.task_id}|${run.head.device}`));
    fill(
      this.root,
      element("h1", {}, `Compare ${counted(this.runs.length, "run", "runs")}`),
      this.missing.map(({ runId, error }) =>
        element("p.trouble", { role: "alert" }, isolated(legibleLine(runId, 80)), `: ${error.message}`),
      ),
      tasks.size > 1 &&
        element(
          "p.hint",
          {},
          "These runs have different tasks or devices: a speedup is against each one's own reference, and says nothing of one beside another.",
        ),
      this.runs.length > 0 && [
        this.#legend(),
        this.#curves(),
        element("div.compare-pair", {}, this.#workloads(), this.#fractions()),
        this.#table(),
      ],
    );
    return () => this.#closing.forEach((end) => end());
  }

  #legend() {
    return element(
      "ul.plot-legend",
      { "aria-label": "Lines" },
      this.groups.map((places, tone) =>
        element(
          "li",
          {},
          element(`span.swatch.${toneOf(tone)}`),
          isolated(this.names[tone]),
          places.length > 1 ? ` (${places.length} runs: their median, and from the least to the best)` : "",
        ),
      ),
    );
  }

  #curves() {
    const box = element("div.plot-box");
    const buttons = element("div.row", { role: "group", "aria-label": "Against what" });
    const note = element("p.hint");
    const choose = (name) => {
      axis = name;
      show();
    };
    let stop = () => {};
    const show = () => {
      stop();
      const [, title, xText] = AXES.find(([name]) => name === axis);
      fill(
        buttons,
        AXES.map(([name, text]) =>
          element(
            "button",
            {
              type: "button",
              "aria-pressed": String(name === axis),
              data: { axis: name },
              onclick: () => (choose(name), buttons.querySelector(`[data-axis=${name}]`).focus()),
            },
            text,
          ),
        ),
      );
      const spec = this.#curveSpec();
      const isEmpty = !spec.lines.some((line) => line.points.length);
      fill(
        note,
        isEmpty
          ? "None of these runs has a correct candidate that was timed yet."
          : axis === "cost_usd" && this.runs.some((run) => run.totals?.unpriced_calls)
            ? "Prices are not known for all answers: these dollars are the least that was spent."
            : "",
      );
      note.hidden = !note.textContent;
      fill(box);
      stop = isEmpty
        ? () => {}
        : plot(box, {
            ...spec,
            xTitle: title,
            xText,
            xWhole: axis === "round" || axis === "calls",
            yTitle: this.isScored ? "best score so far" : "best speedup so far",
            yText: (value) => (this.isScored ? String(value) : `${value}x`),
            height: 300,
            label: `Best so far against ${title}`,
          });
    };
    show();
    this.#closing.push(() => stop());
    return element(
      "section.panel",
      { "aria-label": "Best so far" },
      element("div.row", {}, element("h2", {}, "Best so far against"), buttons),
      note,
      box,
    );
  }

  #curveSpec() {
    const lines = [];
    const bands = [];
    this.groups.forEach((places, tone) => {
      const curves = places.map((place) => curveOf(this.runs[place], axis));
      const band = bandOf(curves);
      if (band.length) {
        bands.push({ points: band, tone });
        lines.push({
          points: band.map((point) => [point.x, point.middle]),
          tone,
          label: `${this.names[tone]}: median`,
        });
      }
      curves.forEach((points, at) =>
        lines.push({ points, tone, faint: band.length > 0, label: this.runs[places[at]].runId }),
      );
    });
    return { lines, bands, guides: this.isScored ? [] : [{ y: 1, label: "the reference" }] };
  }

  #workloads() {
    const best = this.groups.map((places) => bestOf(places.map((place) => this.runs[place])));
    const names = [...new Set(best.flatMap((run) => (run ? speedupsOf(run).map((one) => one.name) : [])))];
    const most = Math.max(1, ...best.flatMap((run) => (run ? speedupsOf(run).map((one) => one.speedup) : [])));
    const bars = (name) =>
      best.map((run, tone) => {
        const value = run && speedupsOf(run).find((one) => one.name === name)?.speedup;
        const bar = element(`span.bar-fill.${toneOf(tone)}`);
        bar.style.width = value ? `${(value / most) * 100}%` : "0";
        return element(
          "div.bar-line",
          {},
          element("span.bar-track", {}, bar),
          element("span.number", {}, speedup(value ?? null)),
        );
      });
    const body = names.length
      ? element(
          "dl.bars",
          {},
          names
            .slice(0, MOST_BARS)
            .map((name) =>
              element("div", {}, element("dt", {}, isolated(legibleLine(name, 60))), element("dd", {}, bars(name))),
            ),
        )
      : element("p.quiet-text", {}, this.isScored ? "Scores have no workloads." : "Nothing was timed yet.");
    return element(
      "section.panel",
      { "aria-label": "Workloads" },
      element("h2", {}, names.length > 1 ? "Speedup on each workload" : "Speedup"),
      body,
      names.length > MOST_BARS &&
        element("p.hint", {}, `${count(names.length - MOST_BARS)} more workloads are not shown.`),
      this.groups.some((places) => places.length > 1) &&
        names.length > 0 &&
        element("p.hint", {}, "Of several runs of a kind, the best."),
    );
  }

  #fractions() {
    const box = element("div.plot-box");
    const curves = this.groups
      .map((places, tone) => {
        const all = places.flatMap((place) => speedupsOf(this.runs[place]).map((one) => one.speedup));
        return { points: fractionCurve(all), tone, label: this.names[tone], many: all.length };
      })
      .filter((line) => line.points.length);
    const panel = element(
      "section.panel",
      { "aria-label": "Fractions" },
      element("h2", {}, "Fraction of workloads faster than p times the reference"),
      box,
    );
    if (curves.length) {
      this.#closing.push(
        plot(box, {
          lines: curves,
          xTitle: "p",
          yTitle: "fraction",
          xText: (value) => `${value}x`,
          yText: (value) => String(value),
          yTop: 1,
          xTop: Math.max(...curves.map((line) => line.points.at(-1)[0])) * 1.05,
          height: 240,
          label: "Fraction of workloads above a speedup",
        }),
      );
      panel.append(
        element(
          "p.hint",
          {},
          curves.map((line) => `${line.label}: ${counted(line.many, "speedup", "speedups")}`).join("; "),
          ". Runs without a correct candidate count nothing.",
        ),
      );
    } else {
      fill(box, element("p.quiet-text", {}, "Nothing was timed yet."));
    }
    return panel;
  }

  #table() {
    const line = (place, tone) => {
      const { runId, head, totals, marks } = this.runs[place];
      const best = marks.at(-1);
      return element(
        "tr",
        {},
        element(
          "td",
          {},
          element(`span.swatch.${toneOf(tone)}`),
          element("a", { href: address("run", runId) }, isolated(runId)),
        ),
        element("td", {}, isolated(legibleLine(head.task, 60))),
        element("td", {}, isolated(legibleLine(head.device, 60))),
        element("td", {}, words(totals.standing ?? "running")),
        element("td.number.best", {}, best ? speedup(worthOf(best), { scored: head.scored }) : "–"),
        element(
          "td.number.quiet-text",
          {},
          best && !head.scored && best.speedup_high != null
            ? `[${best.credit.toFixed(2)}, ${best.speedup_high.toFixed(2)}]`
            : "",
        ),
        element("td.number", {}, best ? count(best.round) : "–"),
        element("td.number", {}, count(totals.rounds ?? 0)),
        element("td.number", {}, duration(totals.elapsed_s ?? 0)),
        element("td.number", {}, count(totals.calls ?? 0)),
        element("td.number", {}, shortCount((totals.prompt_tokens ?? 0) + (totals.completion_tokens ?? 0))),
        element("td.number", {}, totals.cost_usd ? dollars(totals.cost_usd) : "–"),
        element("td.number", {}, count(head.branches ?? 1)),
        element("td.number", {}, String(head.seed)),
      );
    };
    const heads = ["run", "task", "device", "state"];
    const numbers = [
      "best",
      "95 % interval",
      "in round",
      "rounds",
      "took",
      "calls",
      "tokens",
      "cost",
      "branches",
      "seed",
    ];
    return element(
      "section.panel",
      { "aria-label": "Table" },
      element("h2", {}, "The runs"),
      element(
        "div.scroll",
        {},
        element(
          "table",
          {},
          element(
            "thead",
            {},
            element(
              "tr",
              {},
              heads.map((head) => element("th", { scope: "col" }, head)),
              numbers.map((head) => element("th.number", { scope: "col" }, head)),
            ),
          ),
          element(
            "tbody",
            {},
            this.groups.flatMap((places, tone) => places.map((place) => line(place, tone))),
          ),
        ),
      ),
    );
  }
}
