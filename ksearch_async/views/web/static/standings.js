// What several runs are worth beside each other: pure, knows no document.

/** Fold a run's updates into what a comparison needs: `{head, totals, marks}`. */
export function gist(updates) {
  const known = { head: null, totals: null, marks: [] };
  for (const update of updates) {
    if (update.head) known.head = update.head;
    if (update.totals) known.totals = update.totals;
    if (update.marks) known.marks.push(...update.marks);
  }
  return known;
}

/** Return what a mark is worth: the median speedup, or a score. */
export function worthOf(mark) {
  return mark.speedup ?? mark.credit;
}

/**
 * Return a run's best-so-far curve against an axis ("round", "elapsed_s", "cost_usd", "calls"): points `[x, y]`, each
 * holding until the next; the last one stands at the run's end.
 */
export function curveOf(known, axis) {
  const points = known.marks.map((mark) => [mark[axis] ?? 0, worthOf(mark)]);
  const totals = known.totals ?? {};
  const end =
    { round: totals.rounds, elapsed_s: totals.elapsed_s, cost_usd: totals.cost_usd, calls: totals.calls }[axis] ?? 0;
  if (points.length > 0 && end > points.at(-1)[0]) points.push([end, points.at(-1)[1]]);
  return points;
}

/** Group runs that differ in their seed alone: a map from a key to their places in `runs`. */
export function groupsOf(runs) {
  const groups = new Map();
  runs.forEach((known, place) => {
    const head = known.head;
    const key = head
      ? JSON.stringify([
          head.task_id,
          head.language,
          head.device,
          head.branches ?? 1,
          head.world_model ?? "evolving",
          head.models ?? [],
          head.max_rounds ?? 0,
          head.max_seconds ?? null,
          head.max_calls ?? null,
          head.max_tokens ?? null,
          head.max_cost_usd ?? null,
        ])
      : `?${place}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(place);
  });
  return groups;
}

/** Return a step curve's value at `x`; null before its first point. */
export function valueAt(points, x) {
  let low = 0;
  let high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? null : points[low - 1][1];
}

/**
 * Return the band of several step curves: points `{x, low, middle, high}` (least, median, largest) wherever one of them
 * steps, from where all have a value to where the first of them ends.
 */
export function bandOf(curves) {
  const whole = curves.filter((points) => points.length > 0);
  if (whole.length < 2 || whole.length < curves.length) return [];
  const from = Math.max(...whole.map((points) => points[0][0]));
  const to = Math.min(...whole.map((points) => points.at(-1)[0]));
  const stops = [...new Set(whole.flat().map(([x]) => x))].filter((x) => x >= from && x <= to);
  stops.sort((one, other) => one - other);
  return stops.map((x) => {
    const values = whole.map((points) => valueAt(points, x)).sort((one, other) => one - other);
    return { x, low: values[0], middle: median(values), high: values.at(-1) };
  });
}

/** Return the speedups of a run's best candidate, one per workload. */
export function speedupsOf(known) {
  const best = known.marks.at(-1);
  if (!best) return [];
  if (best.workloads?.length)
    return best.workloads.map((one) => ({ name: one.name, speedup: one.speedup_vs_reference }));
  return best.speedup == null ? [] : [{ name: known.head?.workloads?.[0] ?? "the task", speedup: best.speedup }];
}

/** Return points `[p, share]`: which share of the speedups is larger than `p`, a step down at each of them. */
export function fractionCurve(speedups) {
  if (speedups.length === 0) return [];
  const sorted = [...speedups].sort((one, other) => one - other);
  const points = [[0, 1]];
  sorted.forEach((speedup, at) => points.push([speedup, (sorted.length - at - 1) / sorted.length]));
  return points;
}

/** Return the middle one of sorted numbers, or the mean of the two. */
export function median(sorted) {
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/** Return the best of some runs; null if none has a candidate that counts. */
export function bestOf(runs) {
  const known = runs.filter((run) => run.marks.length);
  return known.reduce(
    (best, run) => (!best || worthOf(run.marks.at(-1)) > worthOf(best.marks.at(-1)) ? run : best),
    null,
  );
}

/** Name groups by what tells them apart: the task, and then whatever settings differ. */
export function namesOf(groups, runs) {
  const parts = [
    (head) => head.task,
    (head) => head.device,
    (head) => head.language,
    (head) => `${head.branches ?? 1} branches`,
    (head) => `${head.world_model ?? "evolving"} tree`,
    (head) => (head.models?.length ? head.models.join(", ") : ""),
    (head) => (head.max_rounds ? `${head.max_rounds} rounds` : ""),
  ];
  const heads = groups.map((places) => runs[places[0]].head);
  const telling = parts.filter((part, at) => at === 0 || new Set(heads.map(part)).size > 1);
  return heads.map((head, at) => {
    const name = telling
      .map((part) => part(head))
      .filter(Boolean)
      .join(", ");
    const isAlone = heads.every(
      (other, place) =>
        place === at || telling.map((part) => part(other)).join() !== telling.map((part) => part(head)).join(),
    );
    return isAlone ? name : `${name} (${runs[groups[at][0]].runId})`;
  });
}
