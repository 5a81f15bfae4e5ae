"""What the planner's model is asked, and how its answer is read. Pure text.

Parts from what changes least to what changes most: the rules and the whole task text first, the same in every call, so
that endpoints that cache prefixes read them once; then the tree, then what happened, then what is wanted.
"""

from __future__ import annotations

import re

from actors.llm.base import Request
from actors.planner.core.state import SearchState
from actors.planner.digest import tree_digest
from actors.planner.reports import childless_section, report_section
from messages.codec import CodecError, decode_script
from messages.edits import EditScript, Refusal
from messages.facts import PlanRequested
from messages.tasks import Target, TaskDescription
from messages.verdicts import worth_text

DIGEST_TOKENS = 24_000
MIN_FIRST_ACTIONS = 3

_SYSTEM = """\
You plan the search for a fast, correct program. You keep a world model: a tree of actions, each a hypothesis about how
to make the program faster, and you revise it as results come in. Coders carry actions out; an evaluator checks and
times what they write. You decide what is worth trying next, never how results are recorded.

The tree
- The root n0 is the reference program. An action builds on the code of its parent; under n0 it starts from the
  reference. Actions below a node are tried once the node is closed, that is, once it has a correct candidate.
- States: open (to be tried), in flight, closed, spent (closed, no further children), pruned, given up (failed too
  often). V, from 0 to 1, says how promising an action is; the machine picks large V first, easier actions first among
  equals, and takes failures into account. Difficulty goes from 1 (mechanical) to 5 (research).
- A result is a speedup over the reference with its credit, the lower bound of its confidence interval.

Good actions
- One hypothesis each, small enough for one program, stated so that a coder who sees only this action and the parent's
  code can carry it out: what to change, with which parameters, why it should help on this hardware.
- Siblings are alternatives; what adds up is a chain. Say in a child what it adds to its parent.
- A transformation that brings nothing alone may pay on top of another: put it there again instead of giving it up.

Answer with one JSON object in a ```json block and nothing after it:
{"summary": "...", "open_questions": ["..."], "edits": [...]}
- `summary` replaces the picture of the task: what limits it, what was learnt. Empty: it stays as it is.
- `edits` are applied in order and checked as one: one bad edit refuses them all. Four kinds:
  {"op": "insert", "parent": ID_OR_KEY, "title": T, "description": D, "difficulty": 1..5, "priority": V, "key": K}
      adds an action; `key` is optional and lets later inserts of the same answer use it as their parent.
  {"op": "update", "node": ID, "priority": V, "difficulty": N, "title": T, "description": D}
      changes the fields that are given, at least one.
  {"op": "prune", "node": ID, "reason": R}
      gives an action up; in flight: when its branch ends; closed: it gets no further children.
  {"op": "split", "node": ID, "into": [{"title": T, "description": D, "difficulty": N, "priority": V}, ...]}
      replaces an action by 2 to 8 smaller ones under the same parent.
- Titles have at most 120 characters, no two children of a node share one. Ids, states, results and counts are the
  machine's: there are no fields for them.

Example for another task, a sum over a list of images:
```json
{"summary": "Memory bound: every image is read once and 8 bytes are written.",
 "open_questions": ["Do two partial sums hide the latency of the addition?"],
 "edits": [
  {"op": "update", "node": "n4", "priority": 0.8},
  {"op": "insert", "parent": "n2", "title": "Four partial sums per row", "difficulty": 2, "priority": 0.7,
   "description": "Keep four sums over interleaved columns, added at the end: one waits for its own result."},
  {"op": "prune", "node": "n7", "reason": "The transposed layout was slower in nine attempts."}]}
```"""


def plan_request(
    state: SearchState, request: PlanRequested, description: TaskDescription, *, digest_tokens: int = DIGEST_TOKENS
) -> Request:
    """Return the question that a call for edits asks.

    Args:
        state: the search at the time of asking.
        request: which branches to tell of, what is wanted, why the previous answer was refused.
        description: the task as models are told it.
        digest_tokens: about how long the tree's part may be.
    """
    reports = tuple(report for report in state.reports if report.branch_id in request.branch_ids)
    spoken_of = {report.node_id for report in reports} | set(request.childless)
    sections = (
        _task(state, description),
        _picture(state),
        f"# The tree\n\n{tree_digest(state, budget_tokens=digest_tokens, shown=spoken_of)}",
        *(report_section(state, report) for report in reports),
        childless_section(state, request.childless),
        _refused(request.refusals),
        _budget(state),
        _analysis(request) if request.purpose == "analyse" else _revision(state, request),
    )
    return Request(
        request_id=request.job_id,
        role="planner",
        system=_SYSTEM,
        parts=tuple(section for section in sections if section),
    )


def parse_script(text: str) -> tuple[EditScript | None, str]:
    """Find the edit script in an answer.

    The first balanced JSON object that has a field of a script and decodes counts, in a fence or bare; if none decodes,
    the complaint is about the first.

    Returns:
        The script and an empty text, or None and what was wrong, in words that help to do better.
    """
    complaint = ""
    for found in _objects(text):
        if _FIELD.search(found) is None:
            continue
        try:
            return decode_script(found), ""
        except CodecError as error:
            complaint = complaint or _explained(str(error))
    if complaint:
        return None, complaint
    if "{" in text:
        return None, 'the answer holds no complete JSON object with "edits": it was cut off, or its braces do not match'
    said = " ".join(text.split())[:300]
    return None, f"the answer holds no JSON object; it said: {said!r}" if said else "the answer is empty"


def _task(state: SearchState, description: TaskDescription) -> str:
    target = state.target
    hardware = f"# Hardware\n\n{target.device}; {target.arch}, {_how(target)}." if target else ""
    moved = f"At least {description.bytes_moved} bytes must be read or written in every call."
    return "\n\n".join(
        part for part in (description.prompt, hardware, moved if description.bytes_moved else "") if part
    )


def _how(target: Target) -> str:
    return f"built with -march={target.march} by {target.toolchain}" if target.march else f"run by {target.toolchain}"


def _picture(state: SearchState) -> str:
    if not state.summary and not state.open_questions:
        return ""
    questions = "\n".join(f"- {question}" for question in state.open_questions)
    asked = f"\n\nOpen questions:\n{questions}" if questions else ""
    return f"# Your picture so far\n\n{state.summary}{asked}"


def _refused(refusals: tuple[Refusal, ...]) -> str:
    if not refusals:
        return ""
    lines = [
        f"- {'the whole' if refusal.index < 0 else f'edits[{refusal.index}]'}: {refusal.reason}" for refusal in refusals
    ]
    return (
        "# Your previous answer was refused; nothing of it was applied\n\n"
        + "\n".join(lines)
        + "\n\nWrite the whole answer anew without these mistakes."
    )


def _budget(state: SearchState) -> str:
    budget = state.settings.budget
    lines = [f"- {state.rounds} of {budget.max_rounds} rounds are used"]
    if budget.wall_clock_s is not None:
        lines.append(f"- {state.elapsed_s:.0f} of {budget.wall_clock_s:.0f} s are over")
    if budget.max_calls is not None:
        lines.append(f"- {state.usage.calls} of {budget.max_calls} model calls are used")
    if budget.max_tokens is not None:
        lines.append(f"- {state.usage.tokens} of {budget.max_tokens} tokens are used")
    if state.incumbent is not None:
        best = state.incumbent
        credit = f" (credit {best.credit:.2f})" if best.speedup is not None else ""
        lines.append(f"- best so far: {worth_text(best.credit, best.speedup)}{credit}, found at {best.node_id}")
    return "# Budget\n\n" + "\n".join(lines)


def _analysis(request: PlanRequested) -> str:
    wanted = max(request.wanted, MIN_FIRST_ACTIONS)
    return (
        "# What is wanted\n\n"
        "This is the first look at the task. Work out what limits the reference on this hardware (memory traffic, "
        "arithmetic, latency, launch or threading overhead), what a fused program must touch at least, and which "
        "numerical care it needs. Put that into `summary`, and what measurements should settle into `open_questions`. "
        f"Then insert at least {MIN_FIRST_ACTIONS} and at most {wanted} actions under n0, different in kind, with "
        "honest V and difficulty."
    )


def _revision(state: SearchState, request: PlanRequested) -> str:
    limit = max(request.wanted, state.settings.max_new_nodes)
    asked = [
        "Revise the tree in the light of what happened: raise or lower V of related actions, rewrite what is vague"
    ]
    asked.append(", prune what is refuted.")
    if request.wanted:
        asked.append(f" Insert {request.wanted} new actions (at most {limit}), above all below the best closed nodes.")
    else:
        asked.append(f" Insert new actions only where you learnt something (at most {limit}).")
    asked.append(" If nothing is left to try, answer with an empty `edits`.")
    return "# What is wanted\n\n" + "".join(asked)


def _objects(text: str) -> list[str]:
    """Return the outermost balanced `{…}` of a text, quotes and escapes respected, from each brace that opens one."""
    found: list[str] = []
    position = text.find("{")
    unmatched = 0
    while position >= 0 and unmatched < _MAX_UNMATCHED:
        end = _end_of_object(text, position)
        if end is None:
            unmatched += 1
            position = text.find("{", position + 1)
            continue
        found.append(text[position:end])
        position = text.find("{", end)
    return found


_MAX_UNMATCHED = 64
"""Braces without an end after which an answer is given up: each costs a pass over the rest."""
_FIELD = re.compile(r'"(?:edits|summary|open_questions)"\s*:')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)


def _end_of_object(text: str, start: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _explained(error: str) -> str:
    """Add to a decoder's message what the model may not know."""
    if "unknown field" in error:
        return f"{error}: ids, states, results and counts are not yours to write; use the fields of the answer format"
    if "Invalid value" in error and "op" in error:
        return f"{error}: `op` is one of insert, update, prune, split"
    return error
