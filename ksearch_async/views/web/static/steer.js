// Orders to a run from the page: buttons, and what the planner decided on them.

import { post, runPath } from "./api.js";
import { element, fill, setText } from "./dom.js";
import { legible } from "./format.js";

const AUDIENCES = [
  ["both", "planner and coders"],
  ["planner", "the planner"],
  ["coder", "the coders"],
];
const MOST_SAID = 5;

/**
 * Returns `{element, close}`: pause, continue, stop and an instruction, for the run that `context` shows.
 */
export function runSteering(context) {
  const desk = new Desk(context);
  const verbs = new Map([
    ["pause", desk.button("Pause", "pause", { title: "What is in flight is finished, nothing new begins" })],
    ["continue", desk.button("Continue", "continue")],
    ["stop", desk.careful("Stop", "stop", "Stop the run? `ksearch resume` goes on with it later.")],
  ]);
  const text = element("textarea", {
    rows: 2,
    name: "instruction",
    placeholder: "Tell the models something, for all further prompts",
    "aria-label": "Instruction",
    maxlength: 4000,
  });
  const to = element(
    "select",
    { "aria-label": "Told to" },
    AUDIENCES.map(([value, said]) => element("option", { value }, said)),
  );
  const tell = element("button", { type: "submit" }, "Tell");
  const submit = async (event) => {
    event.preventDefault();
    if (!text.value.trim() || tell.disabled) return;
    if (await desk.order({ order: "tell", text: text.value.trim(), to: to.value })) text.value = "";
  };
  const box = element(
    "section.steering",
    { "aria-label": "Steering" },
    element(
      "div.row",
      {},
      [...verbs.values()].map((verb) => verb.element),
    ),
    element("form.row.tell", { onsubmit: submit }, text, to, tell),
    desk.why,
    desk.said,
  );
  desk.watch((standing, reason) => {
    verbs.get("pause").allow(!reason && standing === "running");
    verbs.get("continue").allow(!reason && standing === "paused");
    verbs.get("stop").allow(!reason && standing !== "stopping");
    text.disabled = to.disabled = tell.disabled = Boolean(reason);
  });
  return { element: box, close: () => desk.close() };
}

/**
 * Returns `{element, close}`: pin, boost, forbid and release, for one action. `view()` gives its `NodeView` as it is now.
 */
export function nodeSteering(context, nodeId, view) {
  const desk = new Desk(context);
  const by = element("input", {
    type: "number",
    step: "0.1",
    value: "0.5",
    min: "-10",
    max: "10",
    "aria-label": "Added to its score",
  });
  const reason = element("input", {
    type: "text",
    placeholder: "why (optional)",
    "aria-label": "Reason to forbid it",
    maxlength: 300,
  });
  const pin = desk.button("Pin", "pin", { node_id: nodeId, title: "Have it chosen next, once" });
  const boost = desk.button("Boost by", "boost", {
    node_id: nodeId,
    extra: () => ({ by: Number(by.value) }),
    title: "Add to its score",
  });
  const forbid = desk.careful("Forbid", "forbid", "Forbid it and all below it?", {
    node_id: nodeId,
    extra: () => ({ reason: reason.value.trim() }),
  });
  const release = desk.button("Release", "release", { node_id: nodeId, title: "Take back what was ordered for it" });
  const box = element(
    "section.steering",
    { "aria-label": "Steering of this action" },
    element("div.row", {}, pin.element, boost.element, by, forbid.element, reason, release.element),
    desk.why,
    desk.said,
  );
  desk.watch((_standing, refusal) => {
    const node = view();
    const isOrdered = Boolean(node && (node.pinned || node.boost || node.forbidden));
    pin.allow(!refusal && !node?.pinned && !node?.forbidden);
    boost.allow(!refusal && !node?.forbidden);
    forbid.allow(!refusal && !node?.forbidden);
    release.allow(!refusal && isOrdered);
    by.disabled = reason.disabled = Boolean(refusal);
  });
  return { element: box, close: () => desk.close() };
}

/** Says why nothing can be ordered; empty if it can. */
export function refusalOf(server, totals, isKnown) {
  if (!server) return "The server cannot be reached: nothing can be ordered now.";
  if (!server.can_steer)
    return "Looking only: this page has no token. Open the address that `ksearch web` printed, with its #token=….";
  if (!isKnown) return "The run has not begun.";
  if (totals.standing === "finished")
    return "The run has ended; `ksearch resume` goes on with it, with a larger budget if that was used up.";
  return "";
}

/** What the buttons of one place share: one order at a time, answers in words, reasons why not. */
class Desk {
  #closing = [];
  #isAsking = false;

  constructor(context) {
    this.context = context;
    this.store = context.run();
    this.why = element("p.steering-why");
    this.said = element("ol.steering-said", { role: "status", "aria-label": "What was decided" });
  }

  watch(allow) {
    this.allow = () => {
      const { totals, head } = this.store.latest;
      const reason = this.#isAsking
        ? "Waiting for the planner …"
        : refusalOf(this.context.server, totals, Boolean(head));
      setText(this.why, reason);
      this.why.hidden = !reason;
      allow(totals.standing, reason);
    };
    this.#closing.push(this.store.subscribe(() => this.allow()));
    this.allow();
  }

  button(text, order, { title = "", extra = () => ({}), ...fields } = {}) {
    const act = () => this.order({ order, ...fields, ...extra() });
    const button = element("button", { type: "button", title, disabled: true, onclick: act, data: { order } }, text);
    return {
      element: button,
      allow: (may) => {
        button.disabled = !may;
      },
    };
  }

  /** A button that asks again before it acts. */
  careful(text, order, question, terms = {}) {
    const box = element("span.careful");
    const first = element("button", { type: "button", disabled: true, data: { order }, onclick: () => ask() }, text);
    const { extra = () => ({}), ...fields } = terms;
    const ask = () => {
      const yes = element(
        "button.danger",
        {
          type: "button",
          data: { sure: order },
          onclick: () => (back(), this.order({ order, ...fields, ...extra() })),
        },
        `Yes, ${text.toLowerCase()}`,
      );
      const no = element("button", { type: "button", onclick: () => back() }, "No");
      fill(box, element("span", {}, question), yes, no);
      no.focus();
    };
    const back = () => {
      fill(box, first);
      first.focus();
    };
    fill(box, first);
    return {
      element: box,
      allow: (may) => {
        first.disabled = !may;
      },
    };
  }

  /** Gives an order; returns whether it was carried out. */
  async order(body) {
    this.#isAsking = true;
    this.allow();
    try {
      const answer = await post(runPath(this.store.runId, "orders"), body, { signal: this.context.signal });
      this.#tell(answer.said || (answer.done ? "done" : "refused"), answer.done);
      return answer.done;
    } catch (error) {
      if (this.context.signal.aborted) return false;
      this.#tell([error.message, error.hint].filter(Boolean).join(": "), false);
      return false;
    } finally {
      this.#isAsking = false;
      this.allow();
    }
  }

  close() {
    for (const end of this.#closing) end();
  }

  #tell(text, done) {
    const line = element(
      done ? "li" : "li.refused",
      {},
      element("time", {}, new Date().toLocaleTimeString()),
      " ",
      element("bdi", {}, legible(text, 600)),
    );
    this.said.prepend(line);
    while (this.said.children.length > MOST_SAID) this.said.lastChild.remove();
  }
}
