// The processes that take part in the runs of a server: who is there, busy with what, and how much of the time.

import { get } from "./api.js";
import { element, fill, isolated } from "./dom.js";
import { count, counted, duration, legibleLine, share, shortCount, stamp } from "./format.js";
import { address } from "./routes.js";

const LOOK_MS = 3000;
const QUIET_S = 20; // a process that has not said for so long that it is there is shown as silent
const ROLES = ["planner", "coder", "builder", "evaluator"];

export async function open(root, context) {
  context.title("Nodes");
  const said = element("p", { role: "status" }, "Asking who is there …");
  const body = element("div.stack");
  fill(root, element("h1", {}, "Nodes"), said, body);
  let timer = 0;
  const look = async () => {
    try {
      if (!document.hidden || !body.childElementCount) {
        const here = await get("/api/nodes", { signal: context.signal });
        fill(body, drawn(here));
        fill(said, wordsOf(here));
        said.classList.remove("trouble");
      }
    } catch (error) {
      if (context.signal.aborted) return;
      if (error.status >= 400 && error.status < 500) throw error;
      fill(said, `${error.message}. ${body.childElementCount ? "What is shown was so a while ago." : error.hint}`);
      said.classList.add("trouble");
    }
    if (!context.signal.aborted) timer = setTimeout(() => look().catch(() => {}), LOOK_MS);
  };
  await look();
  return () => clearTimeout(timer);
}

function wordsOf({ nodes, unreadable = [] }) {
  if (!nodes.length)
    return [
      "No process has said that it is there. Processes show here where runs go over a NATS server: ",
      element("code", {}, "ksearch web --nats URL"),
      ". A run of one process has its devices in its timeline.",
    ];
  const roles = ROLES.map((role) => [role, nodes.filter((one) => one.presence.role === role).length]).filter(
    ([, many]) => many,
  );
  return [
    `${counted(nodes.length, "process", "processes")}: ${roles.map(([role, many]) => counted(many, role, `${role}s`)).join(", ")}.`,
    unreadable.length ? ` ${counted(unreadable.length, "entry", "entries")} of another release cannot be read.` : "",
  ];
}

function drawn({ nodes, runs = [] }) {
  const missing = runs.filter((run) => run.missing?.length);
  return [
    missing.map((run) =>
      element("p.trouble", {}, isolated(run.card.run_id), ` waits: no ${run.missing.join(" and no ")} takes its jobs.`),
    ),
    ROLES.map((role) => nodes.filter((one) => one.presence.role === role))
      .filter((some) => some.length)
      .map((some) => roleTable(some, runs)),
  ];
}

function roleTable(nodes, runs) {
  const { role } = nodes[0].presence;
  const sorted = [...nodes].sort((one, other) => (one.presence.name < other.presence.name ? -1 : 1));
  const heads = [
    ["name"],
    ["state"],
    [role === "evaluator" || role === "builder" ? "device" : "model"],
    ["busy with"],
    ["at work", true],
    ["", false],
    ["done", true],
    ["failed", true],
    ["taken again", true],
    ["up for", true],
    ["seen", true],
  ];
  return element(
    "section.panel",
    { "aria-label": `${role}s` },
    element("h2", {}, `${role}s`),
    element(
      "div.scroll",
      {},
      element(
        "table.nodes",
        {},
        element(
          "thead",
          {},
          element(
            "tr",
            {},
            heads.map(([head, isNumber]) => element(isNumber ? "th.number" : "th", { scope: "col" }, head)),
          ),
        ),
        element("tbody", {}, sorted.map((node) => line(node, runs))),
      ),
    ),
  );
}

function line({ presence, age_s: age, unfit }, runs) {
  const tally = presence.tally ?? {};
  const slots = presence.slots ?? 1;
  const used = tally.uptime_s ? Math.min(1, (tally.busy_s ?? 0) / (tally.uptime_s * slots)) : null;
  const bar = element("span.bar-fill");
  bar.style.width = `${(used ?? 0) * 100}%`;
  const isSilent = age > QUIET_S && presence.state !== "left";
  const state = isSilent ? "silent" : unfit ? "unfit" : presence.state;
  const detail =
    presence.role === "evaluator" || presence.role === "builder"
      ? presence.device
      : presence.model || (presence.tier ? `tier ${presence.tier}` : "");
  return element(
    "tr",
    { data: { state } },
    element(
      "td",
      { title: `version ${presence.version}` },
      isolated(legibleLine(presence.name, 80)),
      element("span.run-id", {}, isolated(legibleLine(presence.host, 60)), ` · process ${presence.pid}`),
    ),
    element(
      "td",
      {},
      element("span.worker-state", { data: { state } }, state),
      presence.detail && element("span.reason", {}, isolated(legibleLine(presence.detail, 200))),
    ),
    element("td", {}, isolated(legibleLine(detail || "–", 80)), slots > 1 ? ` · ${count(slots)} slots` : ""),
    element("td", {}, presence.role === "planner" ? linked(ledBy(presence, runs)) : busyWith(presence.busy ?? [], slots)),
    element("td.number", {}, share(used)),
    element("td.bar-room", {}, element("span.bar-track", {}, bar)),
    element("td.number", {}, count(tally.done ?? 0)),
    element("td.number", {}, tally.failed ? element("span.warn", {}, count(tally.failed)) : "0"),
    element("td.number", {}, count(tally.redelivered ?? 0)),
    element(
      "td.number",
      { title: presence.role === "coder" ? `${shortCount(tally.completion_tokens ?? 0)} tokens written` : "" },
      duration(tally.uptime_s ?? 0),
    ),
    element("td.number", { title: stamp(presence.seen_at) }, age < 2 ? "now" : `${duration(age)} ago`),
  );
}

/** The runs that a planner leads now. */
function ledBy(presence, runs) {
  if (presence.state === "left") return [];
  return runs.filter(({ card }) => card.planner === presence.name && card.state !== "finished").map(({ card }) => card.run_id);
}

function busyWith(busy, slots) {
  const runs = [...new Set(busy.map((each) => each.run_id))];
  return [busy.length ? `${count(busy.length)}${slots > 1 ? ` of ${count(slots)}` : ""}: ` : "", linked(runs)];
}

function linked(runs) {
  if (!runs.length) return element("span.quiet-text", {}, "nothing");
  return [
    runs
      .slice(0, 3)
      .map((runId, at) => [
        at ? ", " : "",
        element("a", { href: address("run", runId) }, isolated(legibleLine(runId, 60))),
      ]),
    runs.length > 3 ? ` and ${runs.length - 3} more` : "",
  ];
}
