// A run in memory: every value in all its versions, so that the run can be shown as it was after any of its records.
//
// A position counts updates from 0; the last one is the run as it is now. Nothing is computed of a run here: the server's
// updates say it all, and a `Moment` only finds which version of a value was the valid one.

import { follow, get, runPath } from "./api.js";

/** Reads all updates of a run so far. Returns `{updates, last_seq}`. */
export function readHistory(runId, { signal } = {}) {
  return get(runPath(runId, "history"), { signal });
}

/** Holds one run and follows it until it is closed. */
export class RunStore {
  #listeners = new Set();
  #ending = new AbortController();
  #frame = 0;
  #nodes = new Map();
  #jobs = new Map();
  #heads = new Versions();
  #updates = [];
  #attempts = new Log();
  #confirmations = new Log();
  #marks = new Log();
  #notes = new Log();

  /**
   * @param {string} runId
   * @param {Object} [terms]
   * @param {(state: string, error?: Error) => void} [terms.onState] is told `loading`, `live`, `lost` or `refused`.
   * @param {boolean} [terms.isLive] false: `take` is all that is ever shown (tests, files).
   */
  constructor(runId, { onState = () => {}, isLive = true } = {}) {
    this.runId = runId;
    /** Resolves once the history is there; rejects with `ApiError`. */
    this.ready = isLive ? this.#load(onState) : Promise.resolve();
    this.ready.catch(() => {}); // whoever awaits it hears of the error
  }

  /** How many updates are known. */
  get length() {
    return this.#updates.length;
  }

  /** Sequence number of the last record that is known; 0 before the first. */
  get lastSeq() {
    return this.#updates.at(-1)?.seq ?? 0;
  }

  /** The run as it is now. */
  get latest() {
    return this.at(this.length - 1);
  }

  /** Returns the run as it was after an update. */
  at(position) {
    return new Moment(Math.max(0, Math.min(position, this.length - 1)), {
      updates: this.#updates,
      nodes: this.#nodes,
      jobs: this.#jobs,
      heads: this.#heads,
      attempts: this.#attempts,
      confirmations: this.#confirmations,
      marks: this.#marks,
      notes: this.#notes,
    });
  }

  /** Adds updates, oldest first; those that are known already are passed over. */
  take(updates) {
    for (const update of updates) {
      if (update.seq > this.lastSeq) this.#add(update);
    }
    this.#tell();
  }

  /** Calls back, at most once a frame, after updates came. Returns how to stop that. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Follows the run no longer. */
  close() {
    this.#ending.abort();
    this.#listeners.clear();
    cancelAnimationFrame(this.#frame);
  }

  async #load(onState) {
    const signal = this.#ending.signal;
    const told = (state, error) => {
      if (!signal.aborted) onState(state, error);
    };
    told("loading");
    try {
      const history = await readHistory(this.runId, { signal });
      this.take(history.updates);
    } catch (error) {
      told("refused", error);
      throw error;
    }
    const onEvent = (event) => {
      if (event.type === "update") this.take([event.data]);
    };
    follow(`${runPath(this.runId, "updates")}?after=${this.lastSeq}`, { onEvent, onState: told, signal });
  }

  #add(update) {
    const position = this.#updates.push(update) - 1;
    if (update.head) this.#heads.add(position, update.head);
    for (const node of update.nodes ?? []) versionsOf(this.#nodes, node.node_id).add(position, node);
    for (const job of update.jobs ?? []) versionsOf(this.#jobs, job.job_id).add(position, job);
    this.#attempts.add(position, update.attempts?.map((attempt) => ({ ...attempt, position })));
    this.#confirmations.add(position, update.confirmations);
    this.#marks.add(position, update.marks);
    this.#notes.add(position, update.notes?.map((note) => ({ ...note, position })));
  }

  #tell() {
    if (this.#frame || this.#ending.signal.aborted) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      for (const listener of [...this.#listeners]) listener();
    });
  }
}

/** A run as it was after one of its updates. Cheap to make; its lists are made when they are asked for. */
class Moment {
  #run;

  constructor(position, run) {
    this.position = position;
    this.#run = run;
  }

  /** The record's sequence number; 0 if the run has none. */
  get seq() {
    return this.#update?.seq ?? 0;
  }

  /** When, ISO 8601; empty if the run has no record. */
  get at() {
    return this.#update?.at ?? "";
  }

  /** `Totals`, with what the feed leaves out of it filled in. */
  get totals() {
    return { ...NO_TOTALS, ...this.#update?.totals };
  }

  /** `Head`; null before the run's first record. */
  get head() {
    return this.#run.heads.at(this.position);
  }

  /** Returns a `NodeView`; null if there was no such node yet. */
  node(nodeId) {
    return this.#run.nodes.get(nodeId)?.at(this.position) ?? null;
  }

  /** All `NodeView`s there were, in the order in which they came. */
  nodes() {
    return valid(this.#run.nodes, this.position);
  }

  /** All `JobView`s there were, in the order in which they were asked for. */
  jobs() {
    return valid(this.#run.jobs, this.position);
  }

  /** `JobView`s that were under way; what a run leaves undone when it ends is not. */
  openJobs() {
    if (this.totals.standing === "finished") return [];
    return this.jobs().filter((job) => (job.ended_s ?? null) === null);
  }

  /** `AttemptView`s so far, each with the `position` of its update. */
  attempts() {
    return this.#run.attempts.until(this.position);
  }

  /** `ConfirmationView`s so far: what these candidates count for since, instead of their attempts' worth. */
  confirmations() {
    return this.#run.confirmations.until(this.position);
  }

  /** `Mark`s so far: steps of the best-so-far curve. */
  marks() {
    return this.#run.marks.until(this.position);
  }

  /** The last `Note`s so far, at most `limit`, each with the `position` of its update. */
  notes(limit = Infinity) {
    return this.#run.notes.until(this.position, limit);
  }

  /** The `Mark` of the incumbent; null while there is none. */
  best() {
    const { best_id: bestId } = this.totals;
    return (bestId && this.marks().findLast((mark) => mark.candidate_id === bestId)) || null;
  }

  get #update() {
    return this.#run.updates[this.position];
  }
}

const NO_TOTALS = {
  standing: "running",
  stopped_by: "",
  detail: "",
  rounds: 0,
  elapsed_s: 0,
  calls: 0,
  prompt_tokens: 0,
  cached_tokens: 0,
  completion_tokens: 0,
  cost_usd: 0,
  unpriced_calls: 0,
  fates: {},
  faults: {},
  best_id: "",
};

/** The versions of one value, by the position from which on each is valid. */
class Versions {
  #positions = [];
  #values = [];

  /** Adds a version; positions never fall. */
  add(position, value) {
    if (this.#positions.at(-1) === position) {
      this.#values[this.#values.length - 1] = value;
    } else {
      this.#positions.push(position);
      this.#values.push(value);
    }
  }

  /** Returns the version that is valid at a position; null before the first. */
  at(position) {
    const count = countUntil(this.#positions, position);
    return count ? this.#values[count - 1] : null;
  }
}

/** A list that only grows, and of which there was less at earlier positions. */
class Log {
  #positions = [];
  #values = [];

  add(position, values = []) {
    for (const value of values) {
      this.#positions.push(position);
      this.#values.push(value);
    }
  }

  until(position, limit = Infinity) {
    const count = countUntil(this.#positions, position);
    return this.#values.slice(Math.max(0, count - limit), count);
  }
}

/** How many positions of a rising list are not after one; mostly asked about the end. */
function countUntil(positions, position) {
  if (!positions.length || positions[positions.length - 1] <= position) return positions.length;
  let [low, high] = [0, positions.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (positions[middle] <= position) low = middle + 1;
    else high = middle;
  }
  return low;
}

function versionsOf(map, key) {
  let versions = map.get(key);
  if (!versions) map.set(key, (versions = new Versions()));
  return versions;
}

function valid(map, position) {
  const found = [];
  for (const versions of map.values()) {
    const value = versions.at(position);
    if (!value) break; // those after it came later still
    found.push(value);
  }
  return found;
}
