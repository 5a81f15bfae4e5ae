// Where each job of a run stands in its timeline: pure, knows no canvas.

const ROLES = {
  planning: "planner",
  writing: "coder",
  building: "builder",
  evaluating: "evaluator",
  confirming: "evaluator",
};
const ORDER = ["planner", "coder", "builder", "evaluator"];

/**
 * Sort jobs into lanes, one for each process and device or model: `{key, role, worker, unit, rows, jobs, busy_s,
 * waited_s}`. Jobs that overlap stand in rows below each other; `busy_s` counts what workers say that they took, and
 * `waited_s` the rest of the time of jobs that ended.
 */
export function lanesOf(jobs, nowS) {
  const lanes = new Map();
  for (const job of jobs) {
    const role = ROLES[job.verb] ?? job.verb;
    const known = job.ended_s != null;
    const unit = known ? (job.unit ?? "") : "";
    const worker = job.worker ?? "";
    const key = known ? `${role}|${worker}|${unit}` : `${role}|?`;
    if (!lanes.has(key))
      lanes.set(key, { key, role, worker, unit, underWay: !known, rows: [], jobs: [], busy_s: 0, waited_s: 0 });
    lanes.get(key).jobs.push(spanOf(job, nowS));
  }
  const sorted = [...lanes.values()].sort(byRole);
  for (const lane of sorted) {
    lane.jobs.sort((one, other) => one.start - other.start || one.end - other.end);
    lane.rows = stacked(lane.jobs);
    for (const span of lane.jobs) {
      if (lane.underWay) continue;
      lane.busy_s += span.end - span.busyFrom;
      lane.waited_s += span.busyFrom - span.start;
    }
  }
  return sorted;
}

/** Return `{job, start, busyFrom, end}` in seconds of the run; of a job under way, all of it counts as waiting. */
export function spanOf(job, nowS) {
  const start = job.began_s ?? 0;
  const end = Math.max(start, job.ended_s ?? Math.max(nowS, start));
  if (job.ended_s == null) return { job, start, busyFrom: end, end };
  const busy = job.busy_s == null ? end - start : Math.min(job.busy_s, end - start);
  return { job, start, busyFrom: end - busy, end };
}

/** Return how much of a stretch of time at least one of the spans was busy, in seconds. */
export function coveredS(spans) {
  let covered = 0;
  let reached = -Infinity;
  for (const span of [...spans].sort((one, other) => one.busyFrom - other.busyFrom)) {
    const from = Math.max(span.busyFrom, reached);
    if (span.end > from) covered += span.end - from;
    reached = Math.max(reached, span.end);
  }
  return covered;
}

/** Return the index of the first span of a row that ends after a time. */
export function firstVisible(row, fromS) {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row[middle].end < fromS) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Return round numbers of seconds at which to write the time, about `count` of them. */
export function ticksOf(fromS, toS, count) {
  const rough = Math.max((toS - fromS) / Math.max(1, count), 1e-6);
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
  const decade = 10 ** Math.floor(Math.log10(rough));
  const small = [1, 2, 5, 10].map((step) => step * decade).find((step) => step >= rough);
  const step = rough < 1 ? small : (steps.find((each) => each >= rough) ?? Math.ceil(rough / 86400) * 86400);
  const ticks = [];
  for (let at = Math.ceil(fromS / step) * step; at <= toS; at += step) ticks.push(at);
  return ticks;
}

function byRole(one, other) {
  return (
    ORDER.indexOf(one.role) - ORDER.indexOf(other.role) ||
    Number(one.underWay) - Number(other.underWay) ||
    one.worker.localeCompare(other.worker) ||
    one.unit.localeCompare(other.unit)
  );
}

function stacked(spans) {
  const rows = [];
  for (const span of spans) {
    const row = rows.find((each) => each.at(-1).end <= span.start + 1e-9);
    if (row) row.push(span);
    else rows.push([span]);
  }
  return rows;
}
