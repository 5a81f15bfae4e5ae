// The shell: the fragment says which view is open, the shell opens it and closes the one before it.
//
// A view is a module with `open(root, context) -> close`, or a promise of `close`; `root` is an empty element that is its
// own. `context`:
//   parameters  what the fragment named, decoded: `{run, node}`
//   server      `{version, can_steer, place}`; null while it cannot be reached
//   signal      aborted when the view is closed
//   run()       the `RunStore` of `parameters.run`: shared by the views of one run, opened and closed by the shell
//   title(text) names the browser's tab
//   go(...parts) leads to another view: `go("run", id, "node", "n4")`
//   announce(text) tells those who listen instead of looking
//   connection(state, error) shows how a stream of the view's own does; a RunStore's is shown by the shell

import { ApiError, get, keepToken } from "./api.js";
import { element, fill, setText } from "./dom.js";
import { legibleLine } from "./format.js";
import { address } from "./routes.js";
import { RunStore } from "./store.js";
import { followTheme } from "./theme.js";

const ROUTES = [
  ["", () => import("./runs.js")],
  ["run/:run", () => import("./run.js")],
  ["run/:run/node/:node", () => import("./node.js")],
  ["run/:run/diff", () => import("./diff.js")],
  ["run/:run/diff/:left", () => import("./diff.js")],
  ["run/:run/diff/:left/:right", () => import("./diff.js")],
  ["run/:run/lanes", () => import("./lanes.js")],
  ["run/:run/costs", () => import("./costs.js")],
  ["compare", () => import("./compare.js")],
  ["compare/:runs", () => import("./compare.js")],
  ["nodes", () => import("./nodes.js")],
];
const RUN_TABS = [["", "Overview"], ["lanes", "Timeline"], ["costs", "Costs"], ["diff", "Diff"]];
const CONNECTION = { loading: "loading", live: "live", lost: "connection lost: trying again", refused: "refused" };

const view = document.getElementById("view");
const announcer = document.getElementById("announcer");
const shown = { close: null, ending: new AbortController(), store: null };
let server = null;

async function show() {
  const parts = fragmentParts();
  if (takeToken()) return;
  shown.ending.abort();
  shown.close?.();
  const ending = new AbortController();
  Object.assign(shown, { close: null, ending });
  const found = routed(parts);
  useStore(found?.parameters.run ?? null);
  markNavigation(parts[0] ?? "");
  const root = element("div.view");
  fill(view, found?.parameters.run && runTabs(found.parameters.run, parts[2] ?? ""), root);
  window.scrollTo(0, 0);
  if (!found) {
    fail(root, new ApiError(404, `there is no page ${location.hash}`, "the list of runs leads to all others"));
    return;
  }
  try {
    server ??= await get("/api/server").catch(serverless);
    const module = await found.load();
    if (ending.signal.aborted) return;
    const close = await module.open(root, contextOf(found.parameters, ending.signal));
    if (ending.signal.aborted) close?.();
    else shown.close = close;
  } catch (error) {
    if (!ending.signal.aborted) fail(root, error);
  }
}

function contextOf(parameters, signal) {
  return {
    parameters,
    server,
    signal,
    run: () => shown.store,
    title: (text) => {
      document.title = text ? `${text} · ksearch` : "ksearch";
    },
    go: (...parts) => {
      location.hash = address(...parts);
    },
    announce: (text) => setText(announcer, text),
    connection: showConnection,
  };
}

function useStore(runId) {
  if (shown.store?.runId === runId) return;
  shown.store?.close();
  shown.store = null;
  showConnection("");
  if (runId) shown.store = new RunStore(runId, { onState: showConnection });
}

function showConnection(state, error) {
  const label = document.getElementById("connection");
  label.dataset.state = state;
  setText(label, CONNECTION[state] ?? "");
  label.title = error?.message ?? "";
}

/** Shows why a view could not open; where a token is wanted, asks for it. */
function fail(root, error) {
  if (!(error instanceof ApiError)) console.error(error);
  const lines = [element("h1", {}, "This page could not be opened"), element("p", {}, String(error.message ?? error))];
  if (error.hint) lines.push(element("p.hint", {}, error.hint));
  if (error.status === 401 || error.status === 403) lines.push(tokenForm());
  else lines.push(element("p", {}, element("button", { type: "button", onclick: retry }, "Try again")));
  fill(root, element("section.notice", { role: "alert" }, lines));
}

function retry() {
  useStore(null);
  show();
}

function tokenForm() {
  const field = element("input", { type: "password", name: "token", autocomplete: "off", "aria-label": "Token" });
  const submit = (event) => {
    event.preventDefault();
    keepToken(field.value.trim());
    server = null;
    retry();
  };
  return element("form.row", { onsubmit: submit }, field, element("button", { type: "submit" }, "Use this token"));
}

/** `#token=…`, as `ksearch web` prints it: kept for the tab, and taken out of the address. True: the page goes on elsewhere. */
function takeToken() {
  const found = /^#(.*?)[&?]?token=([^&]*)$/.exec(location.hash);
  if (!found) return false;
  keepToken(decodeURIComponent(found[2]));
  server = null;
  useStore(null);
  history.replaceState(null, "", found[1] ? `#${found[1]}` : "#/");
  show();
  return true;
}

function fragmentParts() {
  return location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
}

function routed(parts) {
  for (const [pattern, load] of ROUTES) {
    const names = pattern.split("/").filter(Boolean);
    if (names.length !== parts.length) continue;
    const fits = names.every((name, index) => name.startsWith(":") || name === parts[index]);
    if (!fits) continue;
    const pairs = names.flatMap((name, index) => (name.startsWith(":") ? [[name.slice(1), decoded(parts[index])]] : []));
    return { load, parameters: Object.fromEntries(pairs) };
  }
  return null;
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function markNavigation(first) {
  for (const link of document.querySelectorAll("header nav a")) {
    const target = link.getAttribute("href").replace(/^#\/?/, "");
    const isHere = target === first || (target === "" && first === "run");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

function runTabs(runId, current) {
  const tabs = RUN_TABS.map(([path, said]) => {
    const href = address("run", runId, ...(path ? [path] : []));
    return element("a", { href, "aria-current": path === current ? "page" : null }, said);
  });
  return element("div.run-tabs", {}, element("h1", {}, legibleLine(runId)), element("nav", { "aria-label": "Of this run" }, tabs));
}

function serverless(error) {
  if (error.status) throw error;
  return null;
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  view.focus();
});
window.addEventListener("hashchange", show);
followTheme(document.getElementById("theme"));
show();
