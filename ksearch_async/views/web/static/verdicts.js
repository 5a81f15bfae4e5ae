// What an evaluator said of a candidate, in parts that a page can show.

import { element, isolated } from "./dom.js";
import { count, interval, latency, legible, legibleLine, significant, speedup, words } from "./format.js";

const FEW_WORKLOADS = 40;

/** Returns a fate as a word with its colour. */
export function fateWord(fate, text = words(fate)) {
  return element("span.fate", { data: { fate } }, isolated(legibleLine(text, 80)));
}

/** Returns rows of names and values; those without a value are left out. */
export function facts(pairs) {
  const there = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return element(
    "dl.facts",
    {},
    there.map(([name, value]) =>
      element(
        "div",
        {},
        element("dt", {}, name),
        element("dd", {}, value instanceof Node ? value : isolated(String(value))),
      ),
    ),
  );
}

/** Returns all that a verdict (`CandidateEvaluated`) says, as an element. */
export function verdictView(event) {
  const { verdict } = event;
  const box = element(
    "div.verdict",
    {},
    facts([
      ["verdict", fateWord(verdict.type)],
      ["reason", verdict.reason && legible(verdict.reason, 2000)],
      ["stage", verdict.stage],
      ["rule", verdict.rule],
      ["workload", verdict.workload && legibleLine(verdict.workload)],
      ["score", verdict.score != null ? speedup(verdict.score, { scored: true }) : null],
      ["speedup", speedupWords(verdict)],
      ["latency", latencyWords(verdict)],
      [
        "against",
        verdict.baseline
          ? `${legibleLine(verdict.baseline, 60)}: ${speedup(verdict.speedup_vs_baseline)} ${interval(verdict.baseline_interval?.low, verdict.baseline_interval?.high)}`
          : null,
      ],
      ["pairs", verdict.pairs ? count(verdict.pairs) : null],
      [
        "bits",
        verdict.deterministic == null
          ? null
          : verdict.deterministic
            ? "the same in two calls"
            : "differ from call to call",
      ],
      [
        "wrong",
        verdict.wrong_elements
          ? `${count(verdict.wrong_elements)} of ${count(verdict.elements ?? 0)} elements, by ${significant(verdict.max_abs_error ?? 0)} at most`
          : null,
      ],
      ["patterns", verdict.patterns?.length ? legibleLine(verdict.patterns.join(", "), 400) : null],
      ["flags", verdict.flags?.length ? legibleLine(verdict.flags.join(", "), 400) : null],
      ["device", legibleLine([event.unit, event.device].filter(Boolean).join(", "), 120)],
      ["worker", event.worker && legibleLine(event.worker, 120)],
      ["took", event.wall_s ? (event.wall_s < 0.01 ? "less than 0.01 s" : `${significant(event.wall_s)} s`) : null],
    ]),
  );
  if (verdict.workloads?.length) box.append(workloadTable(verdict.workloads));
  if (verdict.checks?.length) box.append(checkTable(verdict.checks));
  if (verdict.metrics && !scoreOnly(verdict)) box.append(metricTable(verdict.metrics));
  if (verdict.notes?.length) box.append(noteList(verdict.notes));
  const printed = verdict.printed || verdict.log;
  if (printed) box.append(element("pre", {}, isolated(legible(printed, 4000))));
  return box;
}

/** Returns the speedups and latencies of several workloads as a table with bars. */
export function workloadTable(workloads) {
  const most = Math.max(...workloads.map((one) => one.speedup_vs_reference), 1);
  const line = (one) => {
    const bar = element("span.bar-fill");
    bar.style.width = `${Math.max(0.5, (one.speedup_vs_reference / most) * 100)}%`;
    bar.classList.toggle("slower", one.speedup_vs_reference < 1);
    return element(
      "tr",
      {},
      element("td.workload", {}, isolated(legibleLine(one.name, 80))),
      element("td.bar-room", {}, element("span.bar-track", {}, bar)),
      element("td.number", {}, speedup(one.speedup_vs_reference)),
      element("td.number.quiet-text", {}, interval(one.speedup_interval?.low, one.speedup_interval?.high)),
      element("td.number", {}, latency(one.latency_us)),
      element("td.number.quiet-text", {}, latency(one.reference_latency_us)),
      element("td.number", {}, one.speedup_vs_baseline != null ? speedup(one.speedup_vs_baseline) : "–"),
    );
  };
  const heads = ["workload", "", "speedup", "95 % interval", "latency", "reference", "vs baseline"];
  const body = element("tbody", {}, workloads.slice(0, FEW_WORKLOADS).map(line));
  const more = workloads.length - FEW_WORKLOADS;
  const rest = () => body.append(...workloads.slice(FEW_WORKLOADS).map(line));
  return element(
    "div.scroll",
    {},
    element(
      "table.workloads",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          heads.map((head, at) => element(at > 1 ? "th.number" : "th", { scope: "col" }, head)),
        ),
      ),
      body,
    ),
    more > 0 &&
      element(
        "button",
        { type: "button", onclick: (event) => (rest(), event.target.remove()) },
        `Show ${count(more)} more`,
      ),
  );
}

function checkTable(checks) {
  const line = (check) =>
    element(
      "tr",
      {},
      element("td", {}, isolated(legibleLine([check.family, check.workload].filter(Boolean).join(" · "), 80))),
      element("td.number", {}, significant(check.max_abs_error)),
      element("td.number", {}, significant(check.error_ratio)),
    );
  return element(
    "details.checks",
    {},
    element("summary", {}, `${count(checks.length)} checked calls`),
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
            ["inputs", "largest error", "of what is allowed"].map((head, at) =>
              element(at ? "th.number" : "th", { scope: "col" }, head),
            ),
          ),
        ),
        element("tbody", {}, checks.map(line)),
      ),
    ),
  );
}

function noteList(notes) {
  const lines = notes.map((note) => element("li", {}, isolated(legible(note, 2000))));
  return element(
    "details.notes-of-verdict",
    {},
    element("summary", {}, "How it was measured"),
    element("ul", {}, lines),
  );
}

function metricTable(metrics) {
  const line = ([name, value]) =>
    element(
      "tr",
      {},
      element("td", {}, isolated(legibleLine(name, 80))),
      element("td", {}, isolated(legibleLine(String(value), 200))),
    );
  return element(
    "div.scroll",
    {},
    element("table.metrics", {}, element("tbody", {}, Object.entries(metrics).map(line))),
  );
}

function scoreOnly(verdict) {
  return Object.keys(verdict.metrics).length < 2;
}

function speedupWords(verdict) {
  const { speedup_vs_reference: median, speedup_interval: bounds, timed } = verdict;
  if (timed === false) return "correct, not timed";
  if (median == null && !bounds) return null;
  return [median != null ? speedup(median) : "", interval(bounds?.low, bounds?.high)].filter(Boolean).join(" ");
}

function latencyWords(verdict) {
  if (verdict.latency_us == null) return null;
  const reference =
    verdict.reference_latency_us == null ? "" : `, the reference ${latency(verdict.reference_latency_us)}`;
  return `${latency(verdict.latency_us)}${reference}`;
}
