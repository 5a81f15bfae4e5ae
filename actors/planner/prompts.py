"""Prompts for the planner's model: rules, tree, reports and status of the search. Pure text.

Parts are ordered from the least to the most changing, for prefix caches: the rules and the task text; the tree as last
written whole and all changes since; the status and the request. Tree lines are in order of insertion, each shown whole
or not at all. Over the budget these are dropped, in order: tails of titles of finished nodes; old, deep, settled
subtrees (one line counts them); open nodes of low V and the rest, oldest first (one line counts them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from actors.llm.base import Request
from actors.planner.core.evolve import as_told
from actors.planner.core.selection import Calibration, Terms, calibration, gain_of, ranking
from actors.planner.core.state import (
    Attempt,
    Incumbent,
    Instruction,
    Node,
    Report,
    Score,
    SearchState,
    Snapshot,
    active,
    in_order,
    number_of,
)
from evaluators.hardware.profiles import describe_profile
from evaluators.hardware.roofline import Roofline, describe_hardware, roofline, roofline_lines, share_text
from messages.base import ROOT
from messages.edits import Refusal
from messages.facts import PlanRequested
from messages.steering import Audience
from messages.tasks import Candidate, TaskDescription
from messages.verdicts import GOOD_FATES, Fate, WorkloadProfile, score_text, worth_text

SYSTEM = """\
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
- An expected gain is a factor over the parent's speedup: 1.3 means 30 % faster than the parent's code, below 1 a detour
  that is to pay later. What came of your expectations is told back to you: expect what you have learnt to expect.
- You are shown the tree as it once was, and under it what changed since, in order. Of several lines about a node the
  last one holds.

Good actions
- One hypothesis each, small enough for one program, stated so that a coder who sees only this action and the parent's
  code can carry it out: what to change, with which parameters, why it should help on this hardware.
- Siblings are alternatives; what adds up is a chain. Say in a child what it adds to its parent.
- A transformation that brings nothing alone may pay on top of another: put it there again instead of giving it up.
- What two branches gained by different means may add up: insert under the better one, with `merge` naming the closed
  node of the other branch. The coder sees both codes; say which technique to take over, and why they do not exclude
  each other. Two branches that are fast by the same means have nothing to merge.
- A branch that failed says something: code that did not build leaves the idea untested, wrong results at some places
  ask for care there, a time-out for less work. Lower V, split, rewrite or prune accordingly.

Answer with one JSON object in a ```json block and nothing after it:
{"summary": "...", "open_questions": ["..."], "edits": [...]}
- `summary` replaces the picture of the task: what limits it, what was learnt. Empty: it stays as it is.
- `edits` are applied in order and checked as one: one bad edit refuses them all. Four kinds:
  {"op": "insert", "parent": ID_OR_KEY, "title": T, "description": D, "difficulty": 1..5, "priority": V,
   "expected_gain": G, "merge": ID, "key": K}
      adds an action; `expected_gain`, `merge` and `key` are optional; `key` lets later inserts of the same answer use
      it as their parent.
  {"op": "update", "node": ID, "priority": V, "difficulty": N, "title": T, "description": D, "expected_gain": G}
      changes the fields that are given, at least one.
  {"op": "prune", "node": ID, "reason": R}
      gives an action up; in flight: when its branch ends; closed: it gets no further children.
  {"op": "split", "node": ID, "into": [{"title": T, "description": D, "difficulty": N, "priority": V}, ...]}
      replaces an action by 2 to 8 smaller ones under the same parent; each part may have an `expected_gain`.
- Titles have at most 120 characters, no two children of a node share one. Ids, states, results and counts are the
  machine's: there are no fields for them.

Example for another task, a sum over a list of images:
```json
{"summary": "Memory bound: every image is read once and 8 bytes are written.",
 "open_questions": ["Do two partial sums hide the latency of the addition?"],
 "edits": [
  {"op": "update", "node": "n4", "priority": 0.8},
  {"op": "insert", "parent": "n2", "title": "Four partial sums per row", "difficulty": 2, "priority": 0.7,
   "description": "Keep four sums over interleaved columns, added at the end: one waits for its own result.",
   "expected_gain": 1.4},
  {"op": "prune", "node": "n7", "reason": "The transposed layout was slower in nine attempts."}]}
```"""


MAX_SHOWN_CHARS = 8000
"""Maximum length of all instructions in one prompt, but the newest is always shown whole."""


def told(state: SearchState, audience: Audience) -> list[Instruction]:
    """Return the instructions to show to the planner's or the coders' model, oldest first."""
    meant = [said for said in state.instructions if said.to in (audience, "both")]
    room, first = MAX_SHOWN_CHARS, len(meant)
    while first > 0 and (first == len(meant) or len(meant[first - 1].text) <= room):
        first -= 1
        room -= len(meant[first].text)
    return meant[first:]


def instruction_lines(texts: Sequence[str]) -> str:
    """Write instructions as list items; further lines are indented, so that they cannot be headings."""
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts)


_FILES_SHOWN = 4


@lru_cache(maxsize=1024)
def diff_line(before: Candidate, after: Candidate) -> str:
    """Return one line with the changed files and their numbers of changed lines; moved lines do not count."""
    old, new = ({file.path: file.text for file in candidate.files} for candidate in (before, after))
    changed = [path for path in sorted(old | new) if old.get(path) != new.get(path)]
    parts = [_file(path, old.get(path), new.get(path)) for path in changed[:_FILES_SHOWN]]
    more = [f"{len(changed) - _FILES_SHOWN} more files"] if len(changed) > _FILES_SHOWN else []
    return ", ".join([*parts, *more]) or "nothing"


def _file(path: str, before: str | None, after: str | None) -> str:
    old, new = (Counter((text or "").splitlines()) for text in (before, after))
    counts = f"+{(new - old).total()} -{(old - new).total()} lines"
    what = " (new)" if before is None else " (gone)" if after is None else f" of {new.total()}"
    return f"{path} {counts}{what}"


_RECENT = 64
"""Number of latest nodes that keep their whole titles."""
_SHORT_TITLE = 32


_written_whole: list[tuple[Snapshot, int, str]] = []
"""Texts of the latest snapshots: every prompt repeats the same text until the next snapshot."""
_SNAPSHOTS_KEPT = 8


def snapshot_digest(snapshot: Snapshot, *, budget_bytes: int) -> str:
    """Return the lines of the tree at the snapshot; every call returns the same text."""
    for kept, budget, text in _written_whole:
        if kept is snapshot and budget == budget_bytes:
            return text
    shown = {snapshot.incumbent_id} if snapshot.incumbent_id else set()
    text = tree_digest(in_order(snapshot.nodes), budget_bytes=budget_bytes, shown=shown)
    _written_whole.insert(0, (snapshot, budget_bytes, text))
    del _written_whole[_SNAPSHOTS_KEPT:]
    return text


def tree_digest(nodes: list[Node], *, budget_bytes: int, shown: Iterable[str] = ()) -> str:
    """Return the lines of all nodes, given in order of insertion, in about `budget_bytes` of UTF-8.

    The root and the nodes in `shown` are dropped last.
    """
    lines = {node.node_id: node_line(node) for node in nodes}
    size = _size(lines)
    if size <= budget_bytes:
        return "\n".join(lines.values())
    size = _shorten(nodes, lines, size)
    protected = {ROOT, *shown}
    hidden: dict[str, _Hidden] = {}
    left_out = ""
    if size > budget_bytes:
        hidden = _fold(nodes, lines, size - budget_bytes, protected)
        size = _size(lines) + sum(_bytes(found.text) for found in hidden.values())
    if size > budget_bytes:
        left_out = _leave_out(nodes, lines, hidden, size - budget_bytes, protected)
    text = []
    for node_id, line in lines.items():
        text += [line, hidden[node_id].text] if node_id in hidden else [line]
    return "\n".join([*text, left_out] if left_out else text)


_known: dict[tuple[str, bool], tuple[Node, str]] = {}
"""The line last written for each node id, with its node: nodes are immutable, so comparing identities suffices."""


def node_line(node: Node, *, short: bool = False) -> str:
    """Return one line: id, parent, state, V, difficulty, title, expectation, best result, tries, statuses.

    A node in flight is shown as open, since a line stays valid until another replaces it.
    """
    key = (node.node_id, short)
    known = _known.get(key)
    if known is None or known[0] is not node:
        known = _known[key] = (node, _written(node, short=short))
    return known[1]


def _written(node: Node, *, short: bool) -> str:
    if node.node_id == ROOT:
        if node.best is not None:
            return f"{ROOT} | root | the initial program, {worth_text(node.best.credit, node.best.speedup)}"
        return f"{ROOT} | root | the reference program, speedup 1.00x"
    parts = [
        f"{node.node_id} < {node.parent_id}{f' + {node.second_id}' if node.second_id else ''}",
        _state(node),
        f"V {node.priority:.2f}",
        f"d{node.difficulty}",
        _short(node.title) if short else node.title,
    ]
    parts += _expected(node)
    parts += _ordered(node)
    if node.earlier:
        parts.append(f"in an earlier run: {node.earlier}")
    if node.best is not None:
        parts.append(_best(node))
    if node.tries or node.rounds:
        parts.append(f"{node.tries} tries, {node.rounds} rounds")
    if node.fates:
        parts.append(", ".join(f"{fate} {count}" for fate, count in node.fates))
    return " | ".join(parts)


def _expected(node: Node) -> list[str]:
    if node.best is None:
        return [f"expects {node.expected_gain:.2f}x"] if node.expected_gain is not None else []
    found = gain_of(node.best, node.base)
    if node.expected_then is None or found is None:
        return []
    return [f"expected {node.expected_then:.2f}x, gained {found.gain:.2f}x"]


def _ordered(node: Node) -> list[str]:
    if node.barred:
        return ["forbidden by a person" if node.forbidden is not None else "below a forbidden node"]
    own = ["a person's own"] if node.origin == "person" else []
    pinned = ["pinned by a person: comes next"] if node.pinned else []
    return [*own, *pinned, *([f"a person adds {node.boost:+.2f} to its score"] if node.boost else [])]


def _state(node: Node) -> str:
    if node.state == "pruned":
        return "given up" if node.given_up else "pruned"
    if node.state == "closed" and node.spent:
        return "spent"
    return "open" if node.state == "in_flight" else node.state


def _best(node: Node) -> str:
    best = node.best
    if best is None or best.credit is None:
        return "best: correct, not timed"
    if best.speedup is None:
        return f"best {worth_text(best.credit, None)}"
    if best.is_least:
        return f"best at least {best.speedup:.2f}x (unstable: its time could not be told)"
    return f"best {best.speedup:.2f}x (credit {best.credit:.2f})"


def _short(title: str) -> str:
    if len(title) <= _SHORT_TITLE:
        return title
    head, _, _ = title[:_SHORT_TITLE].rpartition(" ")
    return f"{head or title[:_SHORT_TITLE]} …"


def _size(lines: dict[str, str]) -> int:
    return sum(map(_bytes, lines.values()))


def _bytes(line: str) -> int:
    """Return a line's length in UTF-8 bytes, including its line end."""
    return 1 + (len(line) if line.isascii() else len(line.encode()))


def _shorten(nodes: list[Node], lines: dict[str, str], size: int) -> int:
    for position, node in enumerate(nodes):
        is_old = position < len(nodes) - _RECENT
        if node.state == "pruned" or (node.state == "closed" and is_old):
            line = node_line(node, short=True)
            size -= _bytes(lines[node.node_id]) - _bytes(line)
            lines[node.node_id] = line
    return size


class _Hidden(msgspec.Struct):
    states: Counter[str]
    best: Node | None = None
    text: str = ""
    """The line, set once everything is counted."""

    def take(self, node: Node) -> None:
        self.states[_state(node)] += 1
        has_credit = node.best is not None and node.best.credit is not None
        if has_credit and (self.best is None or _credit(node) > _credit(self.best)):
            self.best = node

    def line(self, where: str) -> str:
        counts = ", ".join(f"{count} {state}" for state, count in sorted(self.states.items()))
        shown = f"; best {self.best.node_id}: {_credit(self.best):.2f}" if self.best else ""
        return f"({self.states.total()} more {where}: {counts}{shown})"


def _fold(nodes: list[Node], lines: dict[str, str], excess: int, protected: set[str]) -> dict[str, _Hidden]:
    """Replace settled subtrees by counts, deepest and oldest first, until `excess` bytes are saved.

    Returns the counts, by the node below which they appear.
    """
    settled = _settled(nodes, protected)
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        if node.node_id in settled and node.parent_id not in settled:
            groups.setdefault(node.parent_id, []).append(node)
    by_id = {node.node_id: node for node in nodes}
    hidden: dict[str, _Hidden] = {}
    for parent_id, tops in sorted(
        groups.items(), key=lambda group: (-group[1][0].depth, number_of(group[1][-1].node_id))
    ):
        if excess <= 0:
            break
        found = _Hidden(states=Counter())
        for node in _with_all_below(tops, by_id):
            found.take(node)
            excess -= _bytes(lines.pop(node.node_id))
        found.text = found.line(f"below {parent_id}")
        hidden[parent_id] = found
        excess += _bytes(found.text)
    return hidden


def _settled(nodes: list[Node], protected: set[str]) -> set[str]:
    alive: set[str] = set()
    for node in reversed(nodes):  # children have larger ids than parents
        if node.node_id in alive or node.state in {"open", "in_flight"} or node.node_id in protected:
            alive |= {node.node_id, node.parent_id}
    return {node.node_id for node in nodes} - alive


def _credit(node: Node) -> float:
    return node.best.credit or 0.0 if node.best else 0.0


def _with_all_below(tops: list[Node], by_id: dict[str, Node]) -> Iterator[Node]:
    waiting = list(tops)
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(by_id[child] for child in node.children)


def _leave_out(
    nodes: list[Node], lines: dict[str, str], hidden: dict[str, _Hidden], excess: int, protected: set[str]
) -> str:
    left = _Hidden(states=Counter())
    present = [node for node in nodes if node.node_id in lines and node.node_id not in protected]
    for node in sorted(present, key=_interest):
        if excess <= -_NOTE_CHARS:
            break
        excess -= _bytes(lines.pop(node.node_id))
        left.take(node)
        below = hidden.pop(node.node_id, None)
        if below is not None:
            excess -= _bytes(below.text)
            left.states.update(below.states)
    return left.line("nodes") if left.states else ""


_NOTE_CHARS = 120
"""Space reserved for the line that counts the rest."""


def _interest(node: Node) -> tuple[int, float, int]:
    """Rank lines: finished nodes, then open nodes by V, then nodes in flight; newer ones last."""
    rank = {"pruned": 0, "closed": 1, "open": 2, "in_flight": 3}[node.state]
    return rank, node.priority if node.state == "open" else _credit(node), number_of(node.node_id)


_ATTEMPTS_SHOWN = 12
_OUTCOME_CHARS = 240
_EVIDENCE_SHOWN = 3

_ADVICE: dict[Fate, str] = {
    "did_not_build": "did not build: the idea was not tested. Say more precisely how to write it, or split it",
    "crashed": "crashed: indices, alignment or the contract. Re-scope it to something smaller, or name the pitfall",
    "wrong": "gave wrong results: ask for the numerical care it lacks, split off the risky part, or prune it",
    "timed_out": "did not end in time: a deadlock, or far too much work. Re-scope or prune it",
    "unusable": "brought no program: the action may be unclear or too large. Rewrite or split it",
    "declined": "brought nothing further: the action is carried out as far as the coder sees",
    "rejected": "broke a rule: rewrite it so that it needs nothing that is forbidden, or prune it",
    "quarantined": "was too good to be true and waits for an audit: do not build on it",
    "unstable": "was correct, but could not be timed reliably: prefer ways with steady timing",
    "outpaced": "was correct but clearly slower: lower V of actions that rest on the same hope",
    "lost": "was lost by the infrastructure: that says nothing about the action",
}


class Telling(msgspec.Struct, frozen=True, kw_only=True):
    """Context of the reports of one call."""

    scored: bool
    incumbent: Incumbent | None
    """Incumbent at the time of that call."""
    programs: Callable[[str], Candidate | None]
    roofline: Roofline | None = None
    """Roofline of the task on its device; None if unknown, or different for each workload."""


def report_section(telling: Telling, report: Report, node: Node) -> str:
    """Describe a finished branch: action, attempts by status, best against parent, expectation and incumbent.

    `node` is the branch's node as it was when first described.
    """
    if report.refuted:
        return _refutation(node, report)
    ended = "extra sample of" if report.extra else "branch on"
    unscored = report.base is None and telling.scored
    base = "the initial program, not yet scored" if unscored else _score(report.base)
    merged = f", merging {node.second_id} ({_score(report.second)})" if report.second is not None else ""
    lines = [
        f"# Finished {ended} {node.node_id}: {node.title}",
        "",
        node.description or node.title,
        "",
        f"It started from {node.parent_id} ({base}){merged} and ended after "
        f"{len(report.attempts)} attempts: {report.reason}.",
        *_attempts(report.attempts),
        "",
        *(_gain(telling, report, report.best) if report.best is not None else ()),
        *_failures(report),
    ]
    return "\n".join(lines)


def _refutation(node: Node, report: Report) -> str:
    now = "has no correct candidate" if report.best is None else f"has this best candidate now: {_score(report.best)}"
    return (
        f"# A result of {node.node_id} that does not hold: {node.title}\n\n"
        f"Measured a second time, what was its best candidate failed: {_shortened(report.reason)}. The node {now}."
    )


def childless_section(state: SearchState, childless: tuple[str, ...]) -> str:
    """Ask once for children of closed nodes that have no open child."""
    if not childless:
        return ""
    lines = [f"- {node_id}: {state.node(node_id).title} ({_score(state.node(node_id).best)})" for node_id in childless]
    return (
        "# Closed nodes without an open child\n\n"
        + "\n".join(lines)
        + "\n\nInsert a child where going on is worth it; you are asked about each node once."
    )


def _attempts(attempts: tuple[Attempt, ...]) -> list[str]:
    left_out = len(attempts) - _ATTEMPTS_SHOWN
    lines = [f"({left_out} earlier attempts are not shown)"] if left_out > 0 else []
    for attempt in attempts[-_ATTEMPTS_SHOWN:]:
        counts = Counter(outcome.split(":")[0] for outcome in attempt.others)
        listed = ", ".join(f"{count} {fate.replace('_', ' ')}" for fate, count in counts.items())
        others = f" (of {len(attempt.others) + 1} drafts; others: {listed})" if attempt.others else ""
        lines.append(f"{attempt.number}. {_shortened(attempt.outcome or attempt.fate)}{others}")
    return lines


def _shortened(text: str) -> str:
    outcome = " ".join(text.split())
    if len(outcome) <= _OUTCOME_CHARS:
        return outcome
    return f"{outcome[:_OUTCOME_CHARS].rpartition(' ')[0]} …"


def _gain(telling: Telling, report: Report, best: Score) -> list[str]:
    lines = [f"Result: {_score(best)}."]
    incumbent = telling.incumbent
    is_best = incumbent is not None and incumbent.candidate_id == best.candidate_id
    if best.credit is not None and best.speedup is None and incumbent is not None:
        so_far = f"The best so far ({incumbent.node_id}) has score {score_text(incumbent.credit)}."
        lines.append("It is the best so far." if is_best else so_far)
    if best.credit is not None and best.speedup is not None:
        lines.append(_against_base(report, best))
        if incumbent is not None:
            ratio = best.speedup / (incumbent.speedup or 1.0)
            least = "at least " if best.is_least else ""
            versus = f"Against the best so far ({incumbent.node_id}): {least}{ratio:.2f} times as fast."
            lines.append("It is the best so far." if is_best else versus)
    if best.latency_us is not None and telling.roofline is not None:
        lines.append(f"Its {best.latency_us:.2f} us are {share_text(telling.roofline, best.latency_us)}.")
    found = [attempt.evidence for attempt in report.attempts if attempt.candidate_id == best.candidate_id]
    lines += [f"- {line}" for line in (found[-1] if found else ())]
    before = telling.programs(report.base.candidate_id) if report.base is not None else None
    after = telling.programs(best.candidate_id)
    if before is not None and after is not None:
        lines.append(f"Changed against its base: {diff_line(before, after)}.")
    return lines


def _against_base(report: Report, best: Score) -> str:
    base = report.base.speedup if report.base is not None and report.base.speedup else 1.0
    found = gain_of(best, report.base)
    times = f"{'at least ' if best.is_least else ''}{(best.speedup or 0.0) / base:.2f} times as fast"
    interval = f" [{found.interval.low:.2f}, {found.interval.high:.2f}]" if found is not None else ""
    expected = f"; {report.expected_gain:.2f} was expected" if report.expected_gain is not None else ""
    return f"Against its parent ({base:.2f}x): {times}{interval}{expected}."


def _failures(report: Report) -> list[str]:
    best_id = report.best.candidate_id if report.best is not None else ""
    others = [attempt for attempt in report.attempts if attempt.candidate_id != best_id]
    fates = Counter(attempt.fate for attempt in others if attempt.fate not in GOOD_FATES)
    if not fates:
        return []
    failed = report.best is None
    lines = ["This branch failed: it has no correct candidate."] if failed else ["Of its other attempts:"]
    for fate, count in fates.most_common():
        lines.append(f"- {count} of {len(report.attempts)} {_ADVICE.get(fate, fate)}.")
        latest = next(attempt for attempt in reversed(others) if attempt.fate == fate)
        lines += [f"  {line}" for line in latest.evidence[:_EVIDENCE_SHOWN]]
    if failed:
        lines.append("Lower its V, split it, rewrite it, or prune it; as it stands it would fail again.")
    return lines


def _score(score: Score | None) -> str:
    if score is None:
        return "the reference, 1.00x"
    if score.speedup is None or score.credit is None:
        return worth_text(score.credit, score.speedup)
    if score.is_least:
        return f"at least {score.speedup:.2f}x, its time could not be told more exactly"
    return f"{score.speedup:.2f}x, credit {score.credit:.2f}"


_FRONTIER_SHOWN = 40
_FEW = 3


def picture_section(state: SearchState) -> str:
    """Return the planner model's own notes on the task."""
    if not state.summary and not state.open_questions:
        return ""
    questions = "\n".join(f"- {question}" for question in state.open_questions)
    asked = f"\n\nOpen questions:\n{questions}" if questions else ""
    return f"# Your picture so far\n\n{state.summary}{asked}"


def profile_section(state: SearchState, profiles: Callable[[str], tuple[WorkloadProfile, ...]]) -> str:
    """Say what takes the time in the best kernel so far, if a GPU profile exists."""
    best = state.incumbent
    told = describe_profile(profiles(best.candidate_id)) if best is not None else ""
    return f"# What takes the time of the best so far ({best.node_id})\n\n{told}" if best is not None and told else ""


def calibration_section(state: SearchState) -> str:
    """Compare expectations with measurements."""
    record = calibration(state)
    lines = [f"- {line}" for line in calibration_lines(record)]
    return "\n".join(["# Your expectations so far", "", *lines]) if lines else ""


def calibration_lines(record: Calibration) -> list[str]:
    """Return the calibration in a few lines; none while there is no data."""
    lines = []
    if record.mean_ratio is not None:
        lines.append(
            f"{record.count} actions with an expected gain were measured; on average (geometric mean) the gain was "
            f"{record.mean_ratio:.2f} times what was expected; {record.reached} of {record.count} reached it"
        )
        if record.count >= _FEW and not 0.8 <= record.mean_ratio <= 1.25:
            more_or_less = "less" if record.mean_ratio < 1 else "more"
            lines.append(f"expect {more_or_less} from now on, or be more specific about why this time is different")
    if record.failed:
        lines.append(f"{record.failed} more, of which a gain was expected, have no correct candidate")
    return lines


def frontier_section(state: SearchState) -> str:
    """List the open nodes in the machine's order of choice, and the nodes in flight."""
    ranked = ranking(state)
    lines = [_frontier_line(node, terms) for node, terms in ranked[:_FRONTIER_SHOWN]]
    if len(ranked) > _FRONTIER_SHOWN:
        lines.append(f"({len(ranked) - _FRONTIER_SHOWN} more)")
    at_work = list(dict.fromkeys(branch.node_id for branch in active(state)))
    flying = [f"In flight: {', '.join(at_work)}", ""] if at_work else []
    body = "\n".join(lines) if lines else "Nothing is open that could be tried now."
    return "\n".join(["# Open actions, in the order in which the machine would take them now", "", *flying, body])


def refused_section(refusals: tuple[Refusal, ...]) -> str:
    """List the reasons why the previous answer was refused."""
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


def budget_section(state: SearchState) -> str:
    """Report the used budget and the best result so far."""
    budget = state.settings.budget
    lines = [f"- {state.rounds} of {budget.max_rounds} rounds are used"]
    if budget.wall_clock_s is not None:
        lines.append(f"- {state.elapsed_s:.0f} of {budget.wall_clock_s:.0f} s are over")
    if budget.max_calls is not None:
        lines.append(f"- {state.usage.calls} of {budget.max_calls} model calls are used")
    if budget.max_tokens is not None:
        lines.append(f"- {state.usage.tokens} of {budget.max_tokens} tokens are used")
    if budget.max_cost_usd is not None:
        lines.append(f"- ${state.cost_usd:.2f} of ${budget.max_cost_usd:.2f} are spent")
    if state.incumbent is not None:
        best = state.incumbent
        credit = f" (credit {best.credit:.2f})" if best.speedup is not None else ""
        lines.append(f"- best so far: {worth_text(best.credit, best.speedup)}{credit}, found at {best.node_id}")
    return "# Budget\n\n" + "\n".join(lines)


def _frontier_line(node: Node, terms: Terms) -> str:
    reasons = [f"V {node.priority:.2f} counts {terms.belief:.2f}, {node.failures} failed"] if node.failures else []
    if node.boost:
        reasons.append(f"people added {node.boost:+.2f}")
    if node.pinned:
        reasons.append("people want it next")
    said = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{node.node_id} {terms.total:.2f}{said}"


DIGEST_TOKENS = 24_000
MIN_FIRST_ACTIONS = 3


def plan_request(
    state: SearchState,
    request: PlanRequested,
    description: TaskDescription,
    *,
    programs: Callable[[str], Candidate | None] = lambda _: None,
    profiles: Callable[[str], tuple[WorkloadProfile, ...]] = lambda _: (),
    digest_tokens: int = DIGEST_TOKENS,
) -> Request:
    """Return the model request of a call for edits.

    Args:
        state: the search when the question is asked.
        request: branches to report, number of wanted actions, and why the previous answer was refused.
        description: the task's description for models.
        programs: returns the run's programs by id, to show their changes.
        profiles: returns their GPU profiles, to show the best's.
        digest_tokens: approximate length of the part with the tree.
    """
    minded = instruction_lines([f"{said.number}. {said.text}" for said in told(state, "planner")])
    sections = (
        _task(state, description),
        f"# What the people who run this search want minded\n\n{minded}" if minded else "",
        *_told(state, request, description, programs, digest_tokens),
        picture_section(state),
        calibration_section(state),
        profile_section(state, profiles),
        frontier_section(state) if request.purpose == "revise" else "",
        childless_section(state, request.childless),
        refused_section(request.refusals),
        budget_section(state),
        _analysis(request) if request.purpose == "analyse" else _revision(state, request),
    )
    return Request(
        request_id=request.job_id,
        role="planner",
        system=SYSTEM,
        parts=tuple(section for section in sections if section),
    )


def _told(
    state: SearchState,
    request: PlanRequested,
    description: TaskDescription,
    programs: Callable[[str], Candidate | None],
    digest_tokens: int,
) -> Iterator[str]:
    """Yield the tree as last written whole, then the additions: earlier ones unchanged, and the new ones."""
    snapshot, calls = as_told(state, request)
    tree = snapshot_digest(snapshot, budget_bytes=int(digest_tokens * snapshot.bytes_per_token))
    yield f"# The tree\n\nAs it was after {snapshot.round} rounds.\n\n{tree}"
    target = state.target
    bound = roofline(description, target) if target is not None and not description.workloads else None
    for one in calls:
        if one.nodes:
            lines = "\n".join(node_line(node) for node in one.nodes)
            yield f"# What changed in the tree, by round {one.round}\n\n{lines}"
        telling = Telling(scored=state.scored, incumbent=one.incumbent, programs=programs, roofline=bound)
        for report, node in zip(one.reports, one.subjects, strict=True):
            yield report_section(telling, report, node)


def _task(state: SearchState, description: TaskDescription) -> str:
    parts = [description.prompt]
    if state.target is not None:
        lines = (describe_hardware(state.target), *roofline_lines(description, state.target))
        parts.append("# Hardware\n\n" + "\n".join(lines))
    if description.bytes_moved:
        needed = description.bytes_needed or description.bytes_moved
        moved = f"At least {needed} bytes must be read or written in every call."
        if 0 < description.bytes_needed < description.bytes_moved:
            moved += f" (The tensors have {description.bytes_moved}; the outputs do not depend on the rest.)"
        parts.append(moved)
    return "\n\n".join(part for part in parts if part)


def _analysis(request: PlanRequested) -> str:
    wanted = max(request.wanted, MIN_FIRST_ACTIONS)
    return (
        "# What is wanted\n\n"
        "This is the first look at the task. Work out, for each workload, what limits the reference on this hardware "
        "(memory traffic, arithmetic, latency, launch or threading overhead), how far it is from the roofline, what a "
        "fused program must touch at least, and which numerical care it needs. Put that into `summary`, and what "
        "measurements should settle into `open_questions` (3 to 8). "
        f"Then insert at least {MIN_FIRST_ACTIONS} and at most {wanted} actions under n0, different in kind, with "
        "honest V, difficulty and expected gain. Each is something that can be carried out at once, no heading for a "
        "family of actions."
    )


def _revision(state: SearchState, request: PlanRequested) -> str:
    limit = max(request.wanted, state.settings.max_new_nodes)
    asked = [
        "Revise the tree in the light of what happened: raise or lower V of related actions, correct what you expect "
        "of them, rewrite what is vague, prune what is refuted."
    ]
    if request.wanted:
        asked.append(f" Insert {request.wanted} new actions (at most {limit}), above all below the best closed nodes.")
    else:
        asked.append(f" Insert new actions only where you learnt something (at most {limit}).")
    asked.append(" If nothing is left to try, answer with an empty `edits`.")
    return "# What is wanted\n\n" + "".join(asked)
