// Talks with the server: plain requests, and streams that come back after they broke.

const TOKEN_KEY = "ksearch-token";
const LONGEST_SILENCE_MS = 40_000; // the server says something every 15 s
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;

/** The server refused, or could not be reached: what, and what to do about it. */
export class ApiError extends Error {
  /** @param {number} status of HTTP; 0: there was no answer. */
  constructor(status, message, hint = "") {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.hint = hint;
  }
}

/** Keeps the token for as long as this tab lives. */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

/** Returns the token; empty if there is none. */
export function token() {
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

/** Returns the address of something of a run's: `runPath("relu", "nodes", "n4")`. */
export function runPath(runId, ...parts) {
  return ["/api/runs", runId, ...parts].map((part, index) => (index ? encodeURIComponent(part) : part)).join("/");
}

/** Returns a JSON answer. Throws `ApiError`, or an AbortError once `signal` says so. */
export async function get(path, { signal } = {}) {
  return answered(await reached(path, { headers: headers(), signal }));
}

/** Posts JSON and returns a JSON answer. Throws as `get`. */
export async function post(path, body, { signal } = {}) {
  const sent = { ...headers(), "Content-Type": "application/json" };
  return answered(await reached(path, { method: "POST", headers: sent, body: JSON.stringify(body), signal }));
}

/**
 * Follows a stream of server-sent events until `signal` ends it; after every break it asks again for what came after the
 * last event that was seen.
 *
 * @param {string} path
 * @param {Object} terms
 * @param {(event: {type: string, data: any, id: string}) => void} terms.onEvent is given each event, its JSON decoded.
 * @param {(state: "live"|"lost"|"refused", error?: Error) => void} [terms.onState] is told how the connection does.
 *   After `refused` (no such run, no token) nothing more is tried.
 * @param {string} [terms.lastId] of the last event that is known already.
 * @param {AbortSignal} terms.signal
 */
export async function follow(path, { onEvent, onState = () => {}, lastId = "", signal }) {
  let waitMs = FIRST_WAIT_MS;
  let seen = lastId;
  while (!signal.aborted) {
    const broken = new AbortController();
    const stop = () => broken.abort();
    signal.addEventListener("abort", stop);
    try {
      const sent = { ...headers(), Accept: "text/event-stream" };
      if (seen) sent["Last-Event-ID"] = seen;
      const response = await reached(path, { headers: sent, signal: broken.signal, cache: "no-store" });
      if (!response.ok) await answered(response);
      onState("live");
      for await (const event of eventsOf(response.body, broken)) {
        waitMs = FIRST_WAIT_MS;
        if (event.id) seen = event.id;
        onEvent(event);
      }
      throw new ApiError(0, "the server closed the stream");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) {
        onState("refused", error);
        return;
      }
      if (!isBreak(error)) throw error;
      onState("lost", error);
    } finally {
      signal.removeEventListener("abort", stop);
      broken.abort();
    }
    await rested(waitMs * (0.75 + Math.random() / 2), signal);
    waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
  }
}

/** Yields the events of a stream, and breaks it off when nothing came for too long. */
async function* eventsOf(body, broken) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = { type: "message", lines: [], id: "" };
  let watch = setTimeout(() => broken.abort(), LONGEST_SILENCE_MS);
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw new ApiError(0, `the stream broke: ${error.message}`);
      });
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => broken.abort(), LONGEST_SILENCE_MS);
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        if (line) {
          take(event, line);
        } else if (event.lines.length) {
          yield { type: event.type, data: JSON.parse(event.lines.join("\n")), id: event.id };
          event = { type: "message", lines: [], id: "" };
        }
      }
    }
  } finally {
    clearTimeout(watch);
    reader.cancel().catch(() => {});
  }
}

function take(event, line) {
  const colon = line.indexOf(":");
  if (colon === 0) return;
  const field = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (field === "data") event.lines.push(value);
  else if (field === "event") event.type = value;
  else if (field === "id") event.id = value;
}

async function reached(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", redirect: "error", ...options });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer", "is `ksearch web` still running?");
  }
}

async function answered(response) {
  if (response.ok) return response.json();
  const refused = await response.json().catch(() => ({}));
  throw new ApiError(response.status, refused.error ?? `the server answered ${response.status}`, refused.hint ?? "");
}

function headers() {
  const known = token();
  return known ? { Authorization: `Bearer ${known}` } : {};
}

/** Whatever the network or the server did; other errors are our own. */
function isBreak(error) {
  return error instanceof ApiError || error instanceof SyntaxError || error.name === "AbortError";
}

/** Waits, but no longer than until the browser is online again or somebody looks at the page again. */
function rested(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(end, milliseconds);
    function end() {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      window.removeEventListener("online", end);
      document.removeEventListener("visibilitychange", end);
      resolve();
    }
    signal.addEventListener("abort", end);
    window.addEventListener("online", end);
    document.addEventListener("visibilitychange", end);
  });
}
