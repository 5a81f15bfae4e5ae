// The figures of a run at a moment: how far it is, what it found, what it cost.

import { element, fill, setText } from "./dom.js";
import { inOrder } from "./fates.js";
import { count, counted, dollars, duration, interval, latency, legible, shortCount, speedup, words, worth } from "./format.js";
import { address } from "./routes.js";

const VERBS = ["planning", "writing", "building", "evaluating", "confirming"];

/** Makes the figures; `show(moment)` fills them. */
export function runHeader(runId) {
  const cells = Object.fromEntries(["standing", "rounds", "best", "time", "spend", "flight"].map((name) => [name, cell(name)]));
  const meter = element("progress.meter", { max: 1, value: 0, "aria-label": "Share of the rounds" });
  cells.rounds.box.append(meter);
  const fates = element("ul.fates", { "aria-label": "Attempts by status" });
  const task = element("p.run-task.quiet-text");
  const box = element("section.run-header", { "aria-label": "Figures" },
    element("dl.figures", {}, Object.values(cells).map(({ box: each }) => each)),
    fates,
  );

  function show(moment, { isNow }) {
    const { totals, head } = moment;
    fill(task, describe(head));
    cells.standing.set(words(totals.standing), standingDetail(totals, isNow));
    cells.standing.value.dataset.standing = totals.standing;
    cells.rounds.set(head?.max_rounds ? `${count(totals.rounds)} / ${count(head.max_rounds)}` : count(totals.rounds), budgets(head));
    meter.value = head?.max_rounds ? Math.min(1, totals.rounds / head.max_rounds) : 0;
    showBest(cells.best, moment, runId);
    cells.time.set(duration(totals.elapsed_s), head?.max_seconds ? `of ${duration(head.max_seconds)}` : `${counted(totals.calls, "model call", "model calls")}`);
    cells.spend.set(spent(totals), tokens(totals));
    showFlight(cells.flight, moment);
    showFates(fates, totals);
  }

  return { element: box, task, show };
}

function cell(name) {
  const titles = { standing: "State", rounds: "Rounds", best: "Best", time: "Time", spend: "Spend", flight: "In flight" };
  const value = element("span.value");
  const detail = element("span.detail");
  const box = element(`div.figure.figure-${name}`, {}, element("dt", {}, titles[name]), element("dd", {}, value, detail));
  return {
    box,
    value,
    detail,
    set(text, more = "") {
      setText(value, text);
      setText(detail, more);
      detail.title = more;
    },
  };
}

function describe(head) {
  if (!head) return [];
  const parts = [head.task, head.language, head.device, head.models?.join(", "), `${counted(head.branches ?? 1, "branch", "branches")}`, `seed ${head.seed}`];
  return [element("bdi", {}, legible(parts.filter(Boolean).join(" · "), 300))];
}

function standingDetail(totals, isNow) {
  if (totals.stopped_by) return legible(`${words(totals.stopped_by)}${totals.detail ? `: ${totals.detail}` : ""}`, 160);
  return isNow ? "" : "earlier";
}

function budgets(head) {
  const parts = [
    head?.target_speedup && `until ${speedup(head.target_speedup)}`,
    head?.max_calls && `${count(head.max_calls)} calls`,
    head?.max_tokens && `${shortCount(head.max_tokens)} tokens`,
  ];
  return parts.filter(Boolean).join(", ");
}

function showBest(target, moment, runId) {
  const mark = moment.best();
  const scored = moment.head?.scored;
  if (!mark) {
    delete target.detail.dataset.said;
    target.set("–", owed(moment, scored));
    return;
  }
  setText(target.value, worth(mark, scored));
  const range = scored ? "" : interval(mark.credit, mark.speedup_high);
  const link = element("a", { href: address("run", runId, "node", mark.node_id) }, mark.node_id);
  const versus = mark.speedup_vs_baseline ? `, ${speedup(mark.speedup_vs_baseline)} of ${legible(mark.baseline, 40)}` : "";
  const time = mark.latency_us ? `, ${latency(mark.latency_us)}` : "";
  const said = `${range} ${mark.node_id} ${mark.round}${time}${versus}`;
  if (target.detail.dataset.said === said) return;
  target.detail.dataset.said = said;
  fill(target.detail, `${range} `, link, ` round ${mark.round}${time}${versus}`);
}

/** What there is while nothing is confirmed. */
function owed(moment, scored) {
  const found = moment.attempts().filter(({ worth: each }) => each).map(({ worth: each }) => each);
  if (!found.length) return "nothing right and timed yet";
  const top = found.reduce((best, each) => (each.credit > best.credit ? each : best));
  return `none confirmed yet; up to ${worth(top, scored)}, measured once`;
}

function spent(totals) {
  if (!totals.cost_usd && totals.unpriced_calls) return "no price";
  return dollars(totals.cost_usd);
}

function tokens(totals) {
  const all = totals.prompt_tokens + totals.completion_tokens;
  const cached = totals.prompt_tokens ? totals.cached_tokens / totals.prompt_tokens : 0;
  const parts = [`${shortCount(all)} tokens`, cached > 0 && `${Math.round(cached * 100)} % cached`];
  if (totals.cost_usd && totals.unpriced_calls) parts.push(`${counted(totals.unpriced_calls, "call", "calls")} without price`);
  return parts.filter(Boolean).join(", ");
}

function showFlight(target, moment) {
  const open = moment.openJobs();
  const verbs = VERBS.map((verb) => [verb, open.filter((job) => job.verb === verb).length]).filter(([, number]) => number);
  target.set(String(open.length), verbs.map(([verb, number]) => `${number} ${verb}`).join(", "));
}

function showFates(list, totals) {
  const pairs = [...inOrder(totals.fates), ...Object.entries(totals.faults).map(([kind, number]) => [`fault: ${kind}`, number])];
  const said = JSON.stringify(pairs);
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  fill(list, pairs.map(([fate, number]) => element("li", {}, element("span.fate", { data: { fate } }, words(fate)), " ", element("b", {}, count(number)))));
}
