// What became of actions: which colour, shape and word tells it. Pure: knows no document.

/** Fates of candidates that are right, worth more than any other that an action had. As messages/verdicts.py has them. */
const CORRECT = ["measured", "scored", "outpaced", "unstable"];
/** Fates that tell nothing against an action. */
const NEUTRAL = ["declined", "duplicate"];

/** Fates in the order in which people are told of them, with what they mean. */
export const FATES = [
  ["measured", "correct, and timed"],
  ["scored", "correct, and scored"],
  ["outpaced", "correct, and too slow: timing was ended"],
  ["unstable", "correct, but its time varied too much"],
  ["wrong", "wrong output"],
  ["did_not_build", "did not build"],
  ["crashed", "crashed"],
  ["timed_out", "took too long"],
  ["rejected", "broke a rule"],
  ["quarantined", "disturbed the judge"],
  ["unusable", "the answer held no candidate"],
  ["declined", "the model declined"],
  ["duplicate", "repeats an earlier candidate"],
];

/**
 * Returns how an action looks: `{tone, shape}`, where `tone` is a colour of the style sheet and `shape` one of `disc` (right
 * candidates), `diamond` (failures only), `ring` (nothing yet), `cross` (given up), `root`.
 */
export function lookOf(node) {
  if (!node.parent_id) return { tone: "text-quiet", shape: "root" };
  const fates = node.fates ?? [];
  const correct = CORRECT.find((fate) => fates.some(([found]) => found === fate));
  if (correct || node.best) return { tone: `fate-${correct ?? "measured"}`, shape: "disc" };
  const worst = mostFrequent(fates.filter(([fate]) => !NEUTRAL.includes(fate))) ?? mostFrequent(fates);
  if (worst) return { tone: `fate-${worst}`, shape: "diamond" };
  if (node.state === "pruned" || node.forbidden) return { tone: "fate-none", shape: "cross" };
  return { tone: "fate-none", shape: "ring" };
}

/** Returns a node's state in a word or two: what people need to know first. */
export function stateWord(node) {
  if (node.forbidden) return "forbidden";
  if (node.state === "pruned") return "pruned";
  if (node.in_flight) return `in flight (${node.in_flight})`;
  if (node.pinned) return "pinned";
  return node.state === "closed" ? "closed" : "open";
}

/** Returns the part of the way to the run's best that a worth is: 0 to 1. Speedups count from 0, scores from the lowest. */
export function shareOfBest(worth, range) {
  const value = worth?.speedup ?? worth?.credit ?? null;
  if (value === null || range.high <= range.low) return value === null ? 0 : 1;
  return Math.max(0, Math.min(1, (value - range.low) / (range.high - range.low)));
}

/** Returns from which to which value actions of a run are worth: what sizes are told by. */
export function worthRange(nodes, scored) {
  const values = nodes.map((node) => node.best?.speedup ?? node.best?.credit).filter((value) => value !== undefined && value !== null);
  if (!values.length) return { low: 0, high: 0 };
  return { low: scored ? Math.min(...values) : 0, high: Math.max(...values) };
}

/** Returns `[fate, count]` pairs in the order of `FATES`. */
export function inOrder(counts) {
  const known = FATES.map(([fate]) => fate);
  const rank = (fate) => (known.includes(fate) ? known.indexOf(fate) : known.length);
  return Object.entries(counts).sort(([left], [right]) => rank(left) - rank(right));
}

function mostFrequent(fates) {
  let found = null;
  for (const pair of fates) if (!found || pair[1] > found[1]) found = pair;
  return found?.[0];
}
