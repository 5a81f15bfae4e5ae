// What a run's models cost: by role and model, and by the action that was written for.

import { get, runPath } from "./api.js";
import { element, fill, isolated, setText } from "./dom.js";
import { count, dollars, duration, legibleLine, share, shortCount } from "./format.js";
import { address } from "./routes.js";
import { facts } from "./verdicts.js";

const READ_AGAIN_MS = 2000; // while the run goes on
const MOST_NODES = 50;

export async function open(root, context) {
  const { run: runId } = context.parameters;
  const store = context.run();
  context.title(`Costs of ${runId}`);
  fill(root, element("p.quiet-text", {}, "Adding up …"));
  await store.ready;
  const panel = costsView(store, context);
  fill(root, panel.element);
  panel.show();
  return () => panel.close();
}

/** Returns `{element, show, close}`: the costs as a part of a page, kept up to date from `show` on. */
export function costsView(store, context) {
  const body = element("div.costs", { "aria-busy": "true" });
  const said = element("p.trouble", { role: "alert", hidden: true });
  let timer = 0;
  let seen = -1;
  let stop = () => {};
  const read = async () => {
    seen = store.latest.totals.calls;
    try {
      const costs = await get(runPath(store.runId, "costs"), { signal: context.signal });
      fill(body, drawn(costs, store));
      body.removeAttribute("aria-busy");
      said.hidden = true;
    } catch (error) {
      if (context.signal.aborted) return;
      setText(said, `What is shown may be old: ${error.message}`);
      said.hidden = false;
    }
  };
  const changed = () => {
    if (timer || store.latest.totals.calls === seen) return;
    timer = setTimeout(() => {
      timer = 0;
      read();
    }, READ_AGAIN_MS);
  };
  return {
    element: element("div", {}, said, body),
    show: () => {
      stop = store.subscribe(changed);
      return read();
    },
    close: () => {
      stop();
      clearTimeout(timer);
    },
  };
}

function drawn({ total, models, nodes }, store) {
  if (!total.calls) return element("p.notice", {}, "No model has answered yet.");
  const head = store.latest.head;
  const limit = head?.max_cost_usd != null ? ` of ${dollars(head.max_cost_usd)}` : "";
  return [
    element(
      "section.panel",
      { "aria-label": "Total" },
      facts([
        ["spent", element("strong", {}, money(total), limit)],
        ["calls", count(total.calls)],
        ["tokens", `${count(total.prompt_tokens)} in, ${count(total.completion_tokens)} out`],
        ["cached", total.prompt_tokens ? `${share(total.cached_tokens / total.prompt_tokens)} of what went in` : null],
        ["answers took", duration(total.latency_s)],
        [
          "prices",
          total.unpriced_calls ? `not known for ${count(total.unpriced_calls)} of ${count(total.calls)} calls` : null,
        ],
      ]),
    ),
    element(
      "section.panel",
      { "aria-label": "By model" },
      element("h2", {}, "By role and model"),
      table(["role", "model"], models, (one) => [one.role, isolated(legibleLine(one.model || "–", 80))], total),
    ),
    nodes.length > 0 &&
      element(
        "section.panel",
        { "aria-label": "By action" },
        element("h2", {}, "By action: what its coders cost"),
        byNode(nodes, store, total),
      ),
  ];
}

function byNode(nodes, store, total) {
  const sorted = [...nodes].sort(
    (one, other) => other.costs.known_usd - one.costs.known_usd || tokens(other.costs) - tokens(one.costs),
  );
  const name = (one) => [
    element("a", { href: address("run", store.runId, "node", one.node_id) }, one.node_id),
    isolated(legibleLine(one.title, 80)),
  ];
  const box = element("div");
  const show = (most) =>
    fill(
      box,
      table(["action", ""], sorted.slice(0, most), name, total),
      sorted.length > most &&
        element("button", { type: "button", onclick: () => show(Infinity) }, `Show all ${count(sorted.length)}`),
    );
  show(MOST_NODES);
  return box;
}

function table(heads, rows, namesOf, total) {
  const most = Math.max(...rows.map((one) => weight(one.costs)), 1e-12);
  const line = (one) => {
    const bar = element("span.bar-fill");
    bar.style.width = `${(weight(one.costs) / most) * 100}%`;
    const { costs } = one;
    return element(
      "tr",
      {},
      namesOf(one).map((name) => element("td", {}, name)),
      element("td.number", {}, count(costs.calls)),
      element("td.number", { title: count(costs.prompt_tokens) }, shortCount(costs.prompt_tokens)),
      element("td.number", {}, costs.prompt_tokens ? share(costs.cached_tokens / costs.prompt_tokens) : "–"),
      element("td.number", { title: count(costs.completion_tokens) }, shortCount(costs.completion_tokens)),
      element("td.number", {}, money(costs)),
      element("td.bar-room", {}, element("span.bar-track", {}, bar)),
      element("td.number.quiet-text", {}, weight(total) ? share(weight(costs) / weight(total)) : "–"),
    );
  };
  const numbers = ["calls", "in", "cached", "out", "cost"];
  return element(
    "div.scroll",
    {},
    element(
      "table.cost-table",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          heads.map((head) => element("th", { scope: "col" }, head)),
          numbers.map((head) => element("th.number", { scope: "col" }, head)),
          element("th", {}, ""),
          element("th.number", { scope: "col" }, total.known_usd ? "of all" : "of all tokens"),
        ),
      ),
      element("tbody", {}, rows.map(line)),
    ),
  );

  function weight(costs) {
    return total.known_usd ? costs.known_usd : tokens(costs);
  }
}

function tokens(costs) {
  return costs.prompt_tokens + costs.completion_tokens;
}

function money(costs) {
  if (costs.cost_usd != null) return dollars(costs.cost_usd);
  if (!costs.calls) return "–";
  return costs.known_usd ? `${dollars(costs.known_usd)} and more` : "no price";
}
