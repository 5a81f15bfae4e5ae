// The list of runs: live, sorted and filtered; some of them chosen are compared.

import { follow } from "./api.js";
import { element, fill, isolated, setText } from "./dom.js";
import { count, dollars, duration, legibleLine, speedup, stamp, words } from "./format.js";
import { address } from "./routes.js";

const MOST_ROWS = 300; // more are shown when asked for
const COLUMNS = [
  { key: "task", title: "task", of: (row) => row.task ?? "" },
  { key: "standing", title: "state", of: (row) => standingOf(row) },
  { key: "rounds", title: "rounds", of: (row) => row.rounds ?? 0, number: true },
  { key: "best", title: "best", of: (row) => row.speedup ?? row.credit ?? -1, number: true },
  { key: "elapsed", title: "took", of: (row) => row.elapsed_s ?? 0, number: true },
  { key: "cost", title: "cost", of: (row) => row.cost_usd ?? 0, number: true },
  { key: "started", title: "started", of: (row) => row.started_at ?? "" },
  { key: "device", title: "device", of: (row) => row.device ?? "" },
];
const kept = { sort: "started", falling: true, words: "", standing: "" }; // for as long as the page lives

export function open(root, context) {
  context.title("");
  const list = new RunList(root, context);
  follow("/api/events", {
    onEvent: (event) => event.type === "runs" && list.take(event.data.runs),
    onState: (state, error) => {
      context.connection(state, error);
      list.lost(state === "live" ? null : error);
    },
    signal: context.signal,
  }).catch((error) => list.lost(error));
  return () => context.connection("");
}

class RunList {
  #rows = [];
  #isKnown = false;
  #lines = new Map();
  #chosen = new Set();
  #mostRows = MOST_ROWS;

  constructor(root, context) {
    this.context = context;
    this.body = element("tbody");
    this.said = element("p.runs-said", { role: "status" }, "Asking for the runs …");
    this.compare = element("button", { type: "button", disabled: true, onclick: () => this.#compare() }, "Compare");
    this.heads = new Map();
    this.standings = element("select", {
      "aria-label": "State",
      onchange: (event) => this.#narrow({ standing: event.target.value }),
    });
    const table = element(
      "table.runs",
      {},
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th.choice", {}, element("span.unseen", {}, "chosen")),
          COLUMNS.map((column) => this.#head(column)),
        ),
      ),
      this.body,
    );
    const filter = element("input", {
      type: "search",
      placeholder: "Filter by task or name",
      "aria-label": "Filter by task or name",
      value: kept.words,
      oninput: (event) => this.#narrow({ words: event.target.value }),
    });
    fill(
      root,
      element("h1", {}, "Runs"),
      element("div.row.runs-tools", {}, filter, this.standings, this.compare),
      this.said,
      element("div.scroll", {}, table),
    );
  }

  take(rows) {
    this.#rows = rows;
    this.#isKnown = true;
    const there = new Set(rows.map((row) => row.run_id));
    for (const runId of [...this.#chosen]) if (!there.has(runId)) this.#chosen.delete(runId);
    this.#offerStandings();
    this.#draw();
  }

  lost(error) {
    this.error = error;
    this.#say();
  }

  #head(column) {
    const sort = () => {
      const falling = kept.sort === column.key ? !kept.falling : column.number || column.key === "started";
      this.#narrow({ sort: column.key, falling });
    };
    const head = element(
      column.number ? "th.number" : "th",
      { scope: "col" },
      element("button.head", { type: "button", onclick: sort }, column.title),
    );
    this.heads.set(column.key, head);
    return head;
  }

  #narrow(change) {
    Object.assign(kept, change);
    this.#draw();
  }

  #offerStandings() {
    const there = [...new Set(this.#rows.map(standingOf))].sort();
    const said = there.join(" ");
    if (this.standings.dataset.said === said) return;
    this.standings.dataset.said = said;
    const option = (value, text) => element("option", { value, selected: value === kept.standing }, text);
    fill(
      this.standings,
      option("", "all states"),
      there.map((each) => option(each, words(each))),
    );
  }

  #shown() {
    const wanted = kept.words.trim().toLowerCase();
    const fits = (row) =>
      (!kept.standing || standingOf(row) === kept.standing) &&
      `${row.task ?? ""} ${row.run_id} ${row.device ?? ""}`.toLowerCase().includes(wanted);
    const { of } = COLUMNS.find((column) => column.key === kept.sort);
    const sign = kept.falling ? -1 : 1;
    const order = (one, other) => (of(one) < of(other) ? -sign : of(one) > of(other) ? sign : 0);
    return this.#rows.filter(fits).sort(order);
  }

  #draw() {
    const shown = this.#shown();
    const lines = shown.slice(0, this.#mostRows).map((row) => this.#line(row));
    const isSame =
      lines.length === this.body.children.length && lines.every((line, at) => line === this.body.children[at]);
    if (!isSame) fill(this.body, lines);
    for (const [key, head] of this.heads) {
      if (key === kept.sort) head.setAttribute("aria-sort", kept.falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.shownCount = shown.length;
    this.#say();
    this.#offerComparison();
  }

  #say() {
    const parts = [];
    if (this.error)
      parts.push(
        `${this.error.message}. `,
        this.#isKnown ? "What is shown is what was known last. " : "",
        this.error.hint ?? "",
      );
    else if (!this.#isKnown) parts.push("Asking for the runs …");
    else if (this.#rows.length === 0)
      parts.push(
        "There is no run here yet. ",
        element("code", {}, "ksearch run rmsnorm_silu"),
        " makes one; it will appear by itself.",
      );
    else if (this.shownCount === 0) parts.push(`None of ${count(this.#rows.length)} runs fits the filter.`);
    else if (this.shownCount > this.#mostRows)
      parts.push(
        `${count(this.#mostRows)} of ${count(this.shownCount)} runs. `,
        element("button", { type: "button", onclick: () => this.#more() }, "Show all"),
      );
    const said = parts.map((part) => part.textContent ?? part).join("");
    if (this.said.textContent !== said) fill(this.said, parts);
    this.said.hidden = !said;
    this.said.classList.toggle("trouble", Boolean(this.error));
  }

  #more() {
    this.#mostRows = Infinity;
    this.#draw();
  }

  #line(row) {
    let line = this.#lines.get(row.run_id);
    const said = JSON.stringify(row);
    if (line?.dataset.said === said) return line;
    const fresh = this.#cells(row);
    if (line) {
      const [choice] = line.children; // stays: it may have the focus
      line.replaceChildren(choice, ...fresh);
    } else {
      line = element("tr", {}, this.#choice(row), fresh);
      this.#lines.set(row.run_id, line);
    }
    line.dataset.said = said;
    line.dataset.standing = standingOf(row);
    return line;
  }

  #choice(row) {
    const choose = (event) => {
      if (event.target.checked) this.#chosen.add(row.run_id);
      else this.#chosen.delete(row.run_id);
      this.#offerComparison();
    };
    const box = element("input", { type: "checkbox", "aria-label": `Choose ${row.run_id}`, onchange: choose });
    return element("td.choice", {}, element("label.choice-room", {}, box));
  }

  #cells(row) {
    const isRead = row.standing !== "unread" && row.standing !== "damaged";
    const name = element(
      "td.name",
      { data: { label: "task" } },
      element(
        "a",
        { href: address("run", row.run_id) },
        isolated(legibleLine(row.task || row.run_id, 80)),
        element("span.run-id", {}, isolated(legibleLine(row.run_id, 80))),
      ),
    );
    const standing = element(
      "td",
      { data: { label: "standing" } },
      element(`span.standing`, { data: { standing: standingOf(row) } }, standingWords(row)),
      row.error && element("span.reason", {}, isolated(legibleLine(row.error, 160))),
    );
    const cell = (label, text, tag = "td.number") => element(tag, { data: { label } }, text);
    return [
      name,
      standing,
      cell("rounds", isRead ? roundsWords(row) : "–"),
      cell("best", speedup(row.scored ? row.credit : row.speedup, { scored: row.scored }), "td.number.best"),
      cell("took", isRead ? duration(row.elapsed_s ?? 0) : "–"),
      cell("cost", isRead && row.cost_usd ? dollars(row.cost_usd) : "–"),
      cell("started", stamp(row.started_at), "td.when"),
      cell(
        "device",
        isolated(legibleLine([row.device, row.language].filter(Boolean).join(", ") || "–", 60)),
        "td.device",
      ),
    ];
  }

  #offerComparison() {
    const chosen = this.#chosen.size;
    this.compare.disabled = chosen < 2;
    setText(this.compare, chosen < 2 ? "Compare: choose two runs or more" : `Compare ${chosen} runs`);
  }

  #compare() {
    const order = this.#rows.map((row) => row.run_id).filter((runId) => this.#chosen.has(runId));
    this.context.go("compare", order.join(","));
  }
}

// What ended before its time, in the words of `ksearch ls`.
const CUT_OFF = { infrastructure: "failed", interrupted: "interrupted" };

/** Return how a run stands, as `ksearch ls` says it. */
function standingOf(row) {
  return (row.standing === "finished" && CUT_OFF[row.stopped_by]) || row.standing;
}

function standingWords(row) {
  const standing = standingOf(row);
  if (standing === "unread") return "being read";
  return standing === "finished" && row.stopped_by ? `finished: ${words(row.stopped_by)}` : words(standing);
}

function roundsWords(row) {
  return row.max_rounds ? `${count(row.rounds ?? 0)} of ${count(row.max_rounds)}` : count(row.rounds ?? 0);
}
