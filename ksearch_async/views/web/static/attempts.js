// One answer of a coder: what it was asked, what it answered, the sources, how they built and what the evaluator said.

import { get, runPath } from "./api.js";
import { dialectOf, listing } from "./code.js";
import { element, fill, isolated } from "./dom.js";
import { count, counted, duration, legible, legibleLine, words } from "./format.js";
import { address } from "./routes.js";
import { facts, fateWord, verdictView } from "./verdicts.js";

/**
 * Returns a folded element for an attempt (`Told`); its parts are asked for and drawn when they are opened.
 *
 * `terms`: `{runId, baseId, isOpen, signal}`; `baseId` is the candidate that a diff is taken against, or empty.
 */
export function attemptView(told, { runId, baseId = "", isOpen = false, signal }) {
  const candidate = told.candidate_id ?? "";
  const body = element("div.attempt-body");
  const box = element("details.attempt.panel", { open: isOpen, data: { attempt: told.number } }, summaryOf(told), body);
  const draw = () => {
    if (!box.open || body.childElementCount) return;
    fill(
      body,
      factsOf(told),
      element(
        "div.row",
        {},
        candidate &&
          baseId &&
          baseId !== candidate &&
          element(
            "a.diff-link",
            { href: address("run", runId, "diff", baseId, candidate) },
            "What changed against what it builds on",
          ),
        candidate && element("a", { href: address("run", runId, "diff", candidate) }, "Compare with another"),
      ),
      candidate && candidateParts(runId, candidate, signal),
      fold(
        `Prompt (${count(told.prompt?.length ?? 0)} characters)`,
        () => listing(told.prompt, { label: "Prompt" }),
        "prompt",
      ),
      fold(
        `Answer (${count(told.answer?.length ?? 0)} characters)`,
        () => listing(told.answer, { label: "Answer" }),
        "answer",
        !candidate,
      ),
    );
  };
  box.addEventListener("toggle", draw);
  draw();
  return box;
}

/** Returns a part that is drawn when it is first opened. */
export function fold(title, make, part = "", isOpen = false) {
  const body = element("div.fold-body");
  const box = element("details.fold", { open: isOpen, data: { part } }, element("summary", {}, title), body);
  const draw = () => {
    if (box.open && !body.childElementCount) fill(body, make());
  };
  box.addEventListener("toggle", draw);
  draw();
  return box;
}

/** Returns what came of an attempt, without the fate's own name in front of it. */
function outcomeOf(told) {
  const said = told.outcome || told.complaint || told.declined || "";
  return [told.fate, words(told.fate)].reduce(
    (rest, name) => (rest.startsWith(`${name}: `) ? rest.slice(name.length + 2) : rest),
    said,
  );
}

function summaryOf(told) {
  const where = [words(told.mode), told.round ? `round ${told.round}` : "no evaluation of its own"].join(" · ");
  return element(
    "summary",
    {},
    element("span.attempt-number", {}, `${told.number}.`),
    " ",
    fateWord(told.fate),
    " ",
    element("span.quiet-text", {}, where),
    " ",
    element("span.attempt-outcome", {}, isolated(legibleLine(outcomeOf(told), 300))),
  );
}

function factsOf(told) {
  const { usage } = told;
  const cached = usage.cached_tokens ? ` (${count(usage.cached_tokens)} cached)` : "";
  const hidden = usage.reasoning_tokens ? ` (${count(usage.reasoning_tokens)} of reasoning)` : "";
  return facts([
    ["complaint", told.complaint && legible(told.complaint, 2000)],
    ["declined", told.declined && legible(told.declined, 2000)],
    ["notes", told.notes?.length ? legible(told.notes.join("\n"), 2000) : null],
    ["model", legibleLine(told.model, 120)],
    ["answered in", duration(told.latency_s)],
    ["tokens", `${count(usage.prompt_tokens ?? 0)} in${cached}, ${count(usage.completion_tokens ?? 0)} out${hidden}`],
    ["ended", told.finish_reason === "stop" ? null : legibleLine(told.finish_reason, 60)],
    ["candidate", told.candidate_id && element("code", {}, told.candidate_id.slice(0, 12))],
  ]);
}

function candidateParts(runId, candidateId, signal) {
  const box = element(
    "div.candidate",
    { "aria-busy": "true" },
    element("p.quiet-text", {}, "Asking for the candidate …"),
  );
  get(runPath(runId, "candidates", candidateId), { signal })
    .then((candidate) => fill(box, partsOf(candidate)))
    .catch((error) => {
      if (!signal?.aborted)
        fill(box, element("p.trouble", { role: "alert" }, [error.message, error.hint].filter(Boolean).join(": ")));
    })
    .finally(() => box.removeAttribute("aria-busy"));
  return box;
}

function partsOf(candidate) {
  const { verdicts, files, did_not_build: firstError } = candidate;
  const said = verdicts.map((event, at) =>
    fold(
      verdicts.length > 1 ? (at ? `Verdict ${at + 1}: measured again` : "Verdict 1") : "Verdict",
      () => verdictView(event),
      "verdict",
      at === verdicts.length - 1,
    ),
  );
  const sources = files.map((file) =>
    fold(
      element(
        "span",
        {},
        "Source ",
        element("code", {}, isolated(legibleLine(file.path, 120))),
        ` (${counted(lineCount(file.text), "line", "lines")})`,
      ),
      () => listing(file.text, { dialect: dialectOf(file.path, candidate.language), numbered: true, label: file.path }),
      "source",
      files.length === 1,
    ),
  );
  const log = fold(
    "Build log",
    () =>
      candidate.build_log
        ? listing(candidate.build_log, { label: "Build log" })
        : element("p.quiet-text", {}, "The compiler said nothing."),
    "build-log",
    Boolean(firstError) && !verdicts.length,
  );
  if (verdicts.length) return [...said, ...sources, log];
  const why = firstError ? `It did not build: ${legibleLine(firstError, 400)}` : "No verdict yet.";
  return [element(firstError ? "p.trouble" : "p.quiet-text", {}, isolated(why)), log, ...sources];
}

function lineCount(text) {
  return text ? text.replace(/\n$/, "").split("\n").length : 0;
}
