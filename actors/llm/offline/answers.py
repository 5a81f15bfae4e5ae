"""Answers of the built-in rules to a coder's and a planner's prompt.

A first attempt takes a likely parameter; later ones take the others, in an order that depends on seed, action and draw.
When none is left the answer says so.

The tree is read from the prompt. A node has the transformations that its title and its ancestors' titles name. The gain
of a transformation is the speedup over the parent, averaged over the nodes that add it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import msgspec

from actors.llm.base import Role
from actors.llm.offline.cpp import codegen as cpp
from actors.llm.offline.cpp.moves import CATALOGUE as CPP_MOVES
from actors.llm.offline.plan import Catalogue, Move, Plan, plan_words, read_plan
from actors.llm.offline.reading import (
    CoderPrompt,
    Contract,
    PlannerPrompt,
    TreeLine,
    read_coder_prompt,
    read_planner_prompt,
)
from actors.llm.offline.reference import read_program
from actors.llm.offline.stages import NoRuleError, Program
from actors.llm.offline.triton import codegen as triton
from messages.base import ROOT
from messages.edits import Edit, EditScript, Insert, Prune, Update

_HEADING = re.compile(r"^# (?P<words>[^\n]+)$", re.MULTILINE)
_PLANNER_ENDS_WITH = "What is wanted"


def role_of(prompt: str) -> Role:
    """Return the role by the prompt's last heading, which asks for the answer; code and trees are quoted before it."""
    headings = _HEADING.findall(prompt)
    return "planner" if headings and headings[-1] == _PLANNER_ENDS_WITH else "coder"


_NAMED = re.compile(r"Add to the plan: `([^`]*)`")
_TUNING = re.compile(r"\bvary\b|\btune\b", re.IGNORECASE)
_ALONG = 2
"""Attempts of an action that also change one, and then two, other numbers."""
_SAFEGUARDS = 2
"""Attempts after a wrong result that only compute more carefully."""
_PLAIN = Plan()


def _catalogue_of(contract: Contract) -> Catalogue:
    return CPP_MOVES if isinstance(contract, cpp.Contract) else triton.CATALOGUE


def _written(programs: Sequence[Program], plan: Plan, contract: Contract) -> tuple[str, str]:
    """Return the fence's info string and the source."""
    if isinstance(contract, cpp.Contract):
        return "cpp path=kernel.cpp", cpp.write_source(programs, plan, contract)
    return "python path=kernel.py", triton.write_source(programs, plan, contract)


def code_answer(prompt: str, *, seed: int) -> str:
    """Answer a coder's prompt: a sentence and a fenced program, or prose that names the missing rule."""
    try:
        asked = read_coder_prompt(prompt)
        task = asked.task
        programs = [read_program(task.source, tensors, name) for name, tensors in task.several]
        return _Coder(asked, programs, seed).answer()
    except NoRuleError as error:
        return f"The built-in rules cannot write this program: they have no rule for {error}."


class _Coder:
    """One answer under construction."""

    def __init__(self, asked: CoderPrompt, programs: list[Program], seed: int) -> None:
        self._asked = asked
        self._programs = programs
        program = programs[asked.task.largest]
        self._key = f"{seed}|{asked.node_id}|{asked.title}|{asked.draw}"
        self._catalogue = _catalogue_of(asked.contract)
        self._known = self._catalogue.known_moves(program)
        self._base = read_plan(asked.base) or Plan()
        self._names = self._moves_of_action()
        self._own = sorted(name for name in self._names if name in self._catalogue.parameters)

    def answer(self) -> str:
        """Return the answer.

        Raises:
            NoRuleError: the language has no rule for a part of the program.
        """
        plan = self._chosen()
        if plan is None:
            return "Nothing further: all variants of this action that the built-in rules know were tried."
        fence, source = _written(self._programs, plan, self._asked.contract)
        titles = [self._catalogue.by_name[name].title.lower() for name in sorted(self._names)]
        return (
            f"On top of `{plan_words(self._base) or 'the plain loops'}`: {', '.join(titles) or 'other parameters'}. "
            f"The plan is now `{plan_words(plan)}`.\n\n```{fence}\n{source}```\n"
        )

    def _moves_of_action(self) -> frozenset[str]:
        """Return the transformations that the action names, in any wording, with those that they need."""
        asked, catalogue = self._asked, self._catalogue
        known = {move.name for move in self._known}
        said = _NAMED.search(asked.description)
        if said is not None:
            return catalogue.with_needs(name for name in said[1].split() if name in catalogue.by_name)
        if self._is_tuning:
            return frozenset()
        text = f"{asked.title}\n{asked.description}".lower()
        return catalogue.with_needs(
            name for name, pattern in catalogue.keywords if name in known and re.search(pattern, text)
        )

    def _chosen(self) -> Plan | None:
        """Return the plan of this attempt; None if every variant was tried."""
        safe = _safeguards(self._asked)
        seen = {self._base if self._asked.base else None, read_plan(self._asked.latest)}
        fresh = (msgspec.structs.replace(plan, **safe) for plan in self._variants())
        tried = max(0, self._asked.attempts - _SAFEGUARDS) if safe else self._asked.attempts
        remaining = itertools.islice((plan for plan in fresh if plan not in seen), tried, None)
        return next(remaining, None)

    def _variants(self) -> Iterator[Plan]:
        """Yield plans without repetition, by tiers: the own parameters, with one other number, with two.

        An action adds exactly its own transformations. Numbers of transformations that the plan already has are varied
        with it a few times; a variation of numbers may try all of them.
        """
        others = self._other_parameters(self._catalogue.applied(self._base, self._names, {}))
        yielded: set[Plan] = set()
        for extra in range(3):
            fresh = 0
            for variant in sorted(self._numbered(others, extra), key=lambda variant: _rank(self._key, variant)):
                if variant not in yielded and (self._is_tuning or not extra or fresh < _ALONG):
                    fresh += 1
                    yielded.add(variant)
                    yield variant

    @property
    def _is_tuning(self) -> bool:
        return _TUNING.search(self._asked.title) is not None

    def _numbered(self, others: list[str], extra: int) -> list[Plan]:
        """Return plans with all values of the own numbers and of `extra` others."""
        values_of = self._catalogue.parameters
        return [
            self._catalogue.applied(
                self._base, {*self._names, *fields}, dict(zip([*self._own, *fields], values, strict=True))
            )
            for fields in itertools.combinations(others, extra)
            for values in itertools.product(*(values_of[name] for name in [*self._own, *fields]))
        ]

    def _other_parameters(self, plan: Plan) -> list[str]:
        """Return numbers that matter for the plan, besides the action's own; new ones only for a variation."""
        known = {move.name: move for move in self._known}
        return [
            name
            for name in self._catalogue.parameters
            if name in known
            and name not in self._own
            and (getattr(plan, name) != getattr(_PLAIN, name) or self._is_tuning)
            and all(getattr(plan, need) for need in known[name].needs)
        ]


def _safeguards(asked: CoderPrompt) -> dict[str, bool]:
    """After a wrong result: sums in double precision first, then libm's functions too."""
    if "wrong" not in asked.failure:
        return {}
    failed = read_plan(asked.latest) or Plan()
    return {"wide": True, "exact": failed.wide}


def _rank(key: str, plan: Plan) -> bytes:
    return blake2b(f"{key}|{plan_words(plan)}".encode(), digest_size=8).digest()


_JOINT = " + "
_CUT = " …"
"""Ending of a title of which the digest shows only the beginning."""
_TUNE = "Tune the parameters, round "
_TUNE_ROUNDS = 3
MIN_FIRST_ACTIONS = 3
MAX_TITLE = 120
"""Characters of a title that an edit may have."""
_MAX_UPDATES = 12
_JOINED = 0.9
"""V of an action that combines everything that helped, below the best result."""
_HELPFUL = 0.07
"""Least gain, as log2 of a speedup, that counts as helpful: more than timings scatter."""
_MIN_CHANGE = 0.05
_STRONG = 4
"""Most actions that are inserted because they promise more than any open one."""
_PLAIN_WORDS = 0.8
"""Assumed speedup of the plain program, as a share of the smallest of any action below the root."""
_DOUBT = 0.5
"""Weight of a transformation's prior, relative to 1 for a measurement on the best program."""
_NEAR = 0.5
"""Share of the best speedup that a closed node must reach to be built on for its own sake."""
_HOPELESS_TRIES = 2
_UNTRIED = 1.2
"""Expected gain of a transformation before it is measured."""


def plan_answer(prompt: str) -> str:
    """Answer a planner's prompt with an edit script."""
    try:
        asked = read_planner_prompt(prompt)
        name, tensors = asked.task.several[asked.task.largest]
        program = read_program(asked.task.source, tensors, name)
        return _rendered(_Planner(asked, program).script())
    except NoRuleError as error:
        text = f"The built-in rules cannot plan for this task: they have no rule for {error}."
        return _rendered(EditScript(summary=text))


def _rendered(script: EditScript) -> str:
    return f"```json\n{msgspec.json.encode(script).decode()}\n```\n"


class _Planner:
    """One answer under construction."""

    def __init__(self, asked: PlannerPrompt, program: Program) -> None:
        self._asked = asked
        self._program = program
        self._catalogue = _catalogue_of(asked.contract)
        self._by_name = self._catalogue.by_name
        self._known = self._catalogue.known_moves(program)
        self._nodes = {line.node_id: line for line in asked.tree}
        self._best = max((line.best for line in asked.tree if line.best), default=1.0)
        self._evidence: dict[str, float] = {}
        self._gains = self._measured_gains()

    def script(self) -> EditScript:
        """Return the answer."""
        if self._asked.purpose == "analyse":
            edits: list[Edit] = list(itertools.islice(self._first_actions(), max(MIN_FIRST_ACTIONS, self._asked.limit)))
        else:
            edits = [*self._updates(), *self._prunes(), *self._inserts()]
        return EditScript(summary=self._summary(), open_questions=self._questions(), edits=tuple(self._accepted(edits)))

    def _first_actions(self) -> Iterator[Insert]:
        """Yield the transformations that need no other, all of them at once, and pairs of them as chains."""
        singles = [move for move in self._known if not move.needs]
        for move in singles:
            yield self._insert(ROOT, [move], move.priority, key=f"first-{move.name}")
        if len(singles) > 1:
            yield self._insert(ROOT, [move for move in singles if move.name in self._catalogue.at_once], 0.5)
        for first, second in itertools.combinations(singles, 2):
            yield self._insert(f"first-{first.name}", [second], second.priority)
        for number in range(len(singles), MIN_FIRST_ACTIONS):
            yield self._tuning(ROOT, number, 0.2)

    def _updates(self) -> list[Update]:
        """Give open actions the V that later measurements suggest."""
        updates = []
        for line in self._asked.tree:
            wanted = round(self._value(line), 2)
            is_off = abs(wanted - line.priority) >= _MIN_CHANGE
            if line.state == "open" and not line.is_ruled_out and is_off and self._own(line):
                updates.append(Update(node=line.node_id, priority=wanted))
        return updates[:_MAX_UPDATES]

    def _prunes(self) -> list[Prune]:
        return [
            Prune(node=line.node_id, reason=f"{line.tries} branches brought no correct candidate")
            for line in self._asked.tree
            if line.state == "open"
            and line.best is None
            and line.tries >= _HOPELESS_TRIES
            and not line.is_ruled_out
            and not line.is_favoured
        ]

    def _inserts(self) -> list[Insert]:
        """Return new actions: those better than any open one, one per good node asked about, and those wanted.

        A node far behind the best stays without a child: children of a slow program rarely win.
        """
        ranked = sorted(self._proposals(), key=lambda insert: -insert.priority)
        open_values = [self._value(line) for line in self._asked.tree if line.state == "open"]
        strong = [insert for insert in ranked if insert.priority > max(open_values, default=0.0)][:_STRONG]
        first: dict[str, Insert] = {}
        for insert in ranked:
            if insert.parent in self._asked.childless and self._reached(insert.parent) >= _NEAR * self._best:
                first.setdefault(insert.parent, insert)
        chosen: list[Insert] = []
        for insert in [*strong, *first.values(), *ranked]:
            if all(self._combined(insert) != self._combined(other) for other in chosen) and not self._is_there(insert):
                chosen.append(insert)
        return chosen[: min(self._asked.limit, max(self._asked.wanted, len({*strong, *first.values()})))]

    def _proposals(self) -> Iterator[Insert]:
        """Yield actions that could still be tried: a missing transformation below a closed node, and tuning."""
        taken = {frozenset(self._path(line.node_id)) for line in self._asked.tree if line.state != "pruned"}
        parents = [line.node_id for line in self._asked.tree if line.state == "closed" and not line.is_ruled_out]
        for parent_id in [ROOT, *parents]:
            have = self._path(parent_id)
            for move in self._known:
                missing = self._catalogue.with_needs([move.name]) - have
                if move.name not in have and not self._is_nearer(parent_id, have | missing, taken):
                    moves = sorted((self._by_name[name] for name in sorted(missing)), key=lambda move: -move.priority)
                    yield self._insert(parent_id, moves, self._promise(parent_id, moves))
            joined = self._helpful(have)
            if len(joined) > 1 and have | {move.name for move in joined} not in taken:
                insert = self._insert(parent_id, joined, _JOINED * self._quality(parent_id))
                yield msgspec.structs.replace(insert, merge=self._second(parent_id, joined))
            number = 1 + sum(name.startswith(_TUNE) for name in have)
            titles = {line.title for line in self._asked.tree if line.parent_id == parent_id}
            if parent_id != ROOT and number <= _TUNE_ROUNDS and f"{_TUNE}{number}" not in titles:
                yield self._tuning(parent_id, number, 0.25 * self._quality(parent_id))

    def _second(self, parent_id: str, moves: Sequence[Move]) -> str:
        """Return the fastest closed node of another branch with one of these transformations; empty: none."""
        names = {move.name for move in moves}
        above = self._above(parent_id)
        others = [
            line
            for line in self._asked.tree
            if line.state == "closed" and line.best and names & self._own(line) and line.node_id not in above
            and parent_id not in self._above(line.node_id)
        ]  # fmt: skip
        return max(others, key=lambda line: line.best or 0.0).node_id if others else ""

    def _above(self, node_id: str) -> set[str]:
        """Return the ids of a node and its ancestors."""
        found = {ROOT}
        while node_id in self._nodes:
            found.add(node_id)
            node_id = self._nodes[node_id].parent_id
        return found

    def _is_nearer(self, parent_id: str, wanted: frozenset[str], taken: set[frozenset[str]]) -> bool:
        """Return True if a combination exists already, or is a smaller step from a better node."""
        have, reached = self._path(parent_id), self._reached(parent_id)
        return wanted in taken or any(
            have < self._path(line.node_id) < wanted and (line.best or 0.0) >= reached
            for line in self._asked.tree
            if line.state == "closed"
        )

    def _helpful(self, have: frozenset[str]) -> list[Move]:
        """Return the transformations that helped elsewhere, the largest gain first, as many as fit a title."""
        ranked = sorted(self._known, key=lambda move: -self._gains.get(move.name, 0.0))
        found: list[Move] = []
        for move in ranked:
            if self._gains.get(move.name, 0.0) < _HELPFUL or move.name in have:
                continue
            needed = sorted(self._catalogue.with_needs([move.name]) - have)  # a set's order is its process's own
            unique = list({item.name: item for item in (*found, *(self._by_name[name] for name in needed))}.values())
            if len(_JOINT.join(item.title for item in unique)) <= MAX_TITLE:
                found = unique
        return found

    def _accepted(self, edits: list[Edit]) -> Iterator[Edit]:
        """Leave out edits that a refusal complained about."""
        reasons = self._asked.refusals
        for edit in edits:
            names = (edit.parent, edit.title) if isinstance(edit, Insert) else (edit.node,)
            if not any(f"'{name}'" in reasons for name in names if name != ROOT):
                yield edit

    def _insert(self, parent_id: str, moves: Sequence[Move], priority: float, *, key: str = "") -> Insert:
        reasons = "\n".join(f"- {move.title}: {move.why}" for move in moves)
        words = " ".join(move.name for move in moves)
        return Insert(
            parent=parent_id,
            title=_JOINT.join(move.title for move in moves)[:MAX_TITLE],
            description=f"{reasons}\n\nAdd to the plan: `{words}`.",
            difficulty=min(5, max(move.difficulty for move in moves) + len(moves) - 1),
            priority=round(min(0.95, max(0.01, priority)), 2),
            expected_gain=self._expected(moves),
            key=key,
        )

    def _expected(self, moves: Sequence[Move]) -> float:
        """Return the expected gain of transformations together: the measured ones, or `_UNTRIED`."""
        gains = [2.0 ** self._gains[move.name] if move.name in self._gains else _UNTRIED for move in moves]
        return round(min(100.0, max(0.01, math.prod(gains))), 2)

    def _tuning(self, parent_id: str, number: int, priority: float) -> Insert:
        return Insert(
            parent=parent_id,
            title=f"{_TUNE}{number}",
            description="Keep the transformations and change their numbers.\n\nAdd to the plan: ``.",
            difficulty=1,
            priority=round(min(0.95, max(0.01, priority)), 2),
        )

    def _own(self, line: TreeLine) -> frozenset[str]:
        """Return the transformations that a node's title names; tuning counts as one."""
        if line.title.startswith(_TUNE):
            return frozenset({line.title})
        by_title = self._catalogue.by_title
        return frozenset(by_title[part].name for part in line.title.split(_JOINT) if part in by_title)

    def _path(self, node_id: str) -> frozenset[str]:
        """Return the transformations of a node and its ancestors, as far as the prompt shows them."""
        found: frozenset[str] = frozenset()
        while node_id in self._nodes:
            found |= self._own(self._nodes[node_id])
            node_id = self._nodes[node_id].parent_id
        return found

    def _is_there(self, insert: Insert) -> bool:
        """Return True if a child of that title exists, possibly shortened by the digest."""
        titles = [line.title for line in self._asked.tree if line.parent_id == insert.parent and line.state != "pruned"]
        return any(
            insert.title.startswith(title.removesuffix(_CUT)) if title.endswith(_CUT) else title == insert.title
            for title in titles
        )

    def _combined(self, insert: Insert) -> frozenset[str]:
        line = TreeLine(
            node_id="", parent_id=insert.parent, state="open", priority=0.0, title=insert.title, best=None, tries=0
        )
        return self._path(insert.parent) | self._own(line)

    def _measured_gains(self) -> dict[str, float]:
        """Return the mean of log2(speedup over the parent) for each transformation, over the nodes that add it.

        Measurements on a program far slower than the best have little weight: they predict little for a fast one.
        """
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for line in self._asked.tree:
            own = self._own(line)
            base = self._reached(line.parent_id)
            if line.best and own:
                weight = min(1.0, max(line.best, base) / self._best)
                for name in sorted(own):
                    found[name].append((math.log2(line.best / base) / len(own), weight))
        self._evidence = {name: sum(weight for _, weight in gains) for name, gains in found.items()}
        return {
            name: sum(gain * weight for gain, weight in gains) / self._evidence[name] for name, gains in found.items()
        }

    def _value(self, line: TreeLine) -> float:
        """Return V of an open node: the expected gain below its parent, halved per failed branch."""
        moves = [self._by_name[name] for name in self._own(line) if name in self._by_name]
        return self._promise(line.parent_id, moves) * 0.5**line.tries if moves else line.priority

    def _promise(self, parent_id: str, moves: Sequence[Move]) -> float:
        if not moves:
            return 0.0
        chance = max(self._chance(move) for move in moves)
        return min(0.95, max(0.01, chance * self._quality(parent_id) + 0.03 * (len(moves) - 1)))

    def _chance(self, move: Move) -> float:
        """Return the expected gain of a transformation: its prior and its measurements, by weight."""
        if move.name not in self._gains:
            return move.priority
        measured = min(0.95, max(0.05, 0.35 + 0.3 * self._gains[move.name]))
        weight = self._evidence[move.name]
        return (_DOUBT * move.priority + weight * measured) / (_DOUBT + weight)

    def _quality(self, parent_id: str) -> float:
        """Return a parent's closeness to the best result so far: children of a slow program rarely win."""
        return 0.2 + 0.8 * min(1.0, self._reached(parent_id) / self._best)

    def _reached(self, parent_id: str) -> float:
        """Return a node's best speedup; for the root, which is never measured, less than any child's."""
        parent = self._nodes.get(parent_id)
        if parent is not None and parent.best:
            return parent.best
        first = [line.best for line in self._asked.tree if line.best and line.parent_id == ROOT]
        return _PLAIN_WORDS * min(first) if first else 1.0

    def _summary(self) -> str:
        learnt = "; ".join(
            f"{self._by_name[name].title.lower()}: {2**gain:.2f}x over the parent"
            for name, gain in sorted(self._gains.items(), key=lambda item: -item[1])
            if name in self._by_name
        )
        shape = f"Built-in rules: {self._program.summary}."
        return f"{shape} Measured so far: {learnt}." if learnt else shape

    def _questions(self) -> tuple[str, ...]:
        untested = [move.title for move in self._known if move.name not in self._gains]
        return tuple(f"What does it bring to {title[0].lower()}{title[1:]}?" for title in untested[:4])
