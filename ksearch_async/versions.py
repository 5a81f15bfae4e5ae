"""What was written in a run, and how people name it: by round, by node, by the beginning of its id, or as `best`.

The reference (the root, `n0`) is no version: where it is meant there is nothing yet, which is `None` here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Final

import msgspec

from ksearch_async.chronicle import Chronicle
from ksearch_async.refusals import refusal
from messages.base import ROOT
from messages.codec import Record
from messages.events import CandidateWritten
from messages.facts import AttemptFinished, BranchStarted, ConfirmationFinished, Fact
from messages.tasks import Candidate
from messages.verdicts import worth_text

BEST: Final = "best"
BASE: Final = ("base", "parent")
"""What the other version's branch started from: its parent node's best candidate."""

_FEWEST_LETTERS = 4
"""Of a candidate's id."""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, where it stands in the run."""

    candidate_id: str
    node_id: str
    base_id: str | None
    """Candidate that its branch started from; null: the reference."""
    round: int | None = None
    """Null if it was not evaluated."""
    fate: str | None = None
    """Of its latest measurement, as are speedup and credit: what a confirmation said is what it counts for."""
    speedup: float | None = None
    credit: float | None = None
    screen_speedup: float | None = None
    """What its first measurement had said, before the one that counts; null if it was measured once."""
    candidate: Candidate

    @property
    def said(self) -> str:
        """Name it for people: `round 5, n3, 2.06x`."""
        result = (self.fate or "no verdict").replace("_", " ")
        if self.credit is not None:
            is_least = self.fate == "unstable" and self.speedup == self.credit
            result = worth_text(self.credit, self.speedup, is_least=is_least)
        place = f"round {self.round}" if self.round else f"candidate {self.candidate_id[:8]}"
        return f"{place}, {self.node_id}, {result}"


class Versions:
    """The candidates of a run. A candidate that was written again keeps the place where it came up first."""

    def __init__(self, records: Iterable[Record]) -> None:
        """Take a run's records, in order."""
        self.chronicle = Chronicle()
        self._by_id: dict[str, Version] = {}
        self._by_round: dict[int, str] = {}
        self._branches: dict[str, BranchStarted] = {}
        for record in records:
            if isinstance(record.body, CandidateWritten):
                self._keep(record.body)
            for fact in self.chronicle.unfold(record):
                self._fold(fact)

    def pair(self, a: str | None, b: str | None) -> tuple[Version | None, Version | None]:
        """Return the two versions that are meant.

        Args:
            a: the older one; null: the base of `b`.
            b: the newer one. If null, `a` is the newer one and is compared with its base; if both are, the best is.

        Raises:
            ConfigError: there is no such version.
        """
        if b is None and a == ROOT:
            raise refusal("'n0' is the reference, which has no base", "name what it is to be compared with")
        if b is None:
            a, b = BASE[0], a or BEST
        elif a is None:
            a = BASE[0]
        if a in BASE and b in BASE:
            raise refusal("both are to be the other's base", "give a round, a node, a candidate's id or 'best' for one")
        if b in BASE:
            older = self.named(a)
            return older, self._base_of(older)
        newer = self.named(b)
        return (self._base_of(newer) if a in BASE else self.named(a)), newer

    def named(self, name: str) -> Version | None:
        """Return the version that a round's number, a node's id, the beginning of a candidate's id or `best` means.

        Raises:
            ConfigError: there is none.
        """
        if name == ROOT:
            return None
        if not self._by_id:
            raise refusal("the run has no candidate yet")
        if name == BEST:
            return self._best()
        if re.fullmatch(r"n\d+", name):
            return self._of_node(name)
        if name.isdigit() and int(name) in self._by_round:
            return self._by_id[self._by_round[int(name)]]
        return self._with_id(name)

    def _best(self) -> Version:
        incumbent = self.chronicle.state.incumbent
        if incumbent is None:
            is_timed = bool(self.chronicle.fates["measured"])
            why = "nothing that was timed has been confirmed" if is_timed else "no candidate was correct and timed"
            raise refusal(f"the run has no best kernel: {why}", self._known_rounds())
        return self._by_id[incumbent.candidate_id]

    def _of_node(self, name: str) -> Version:
        node = self.chronicle.state.nodes.get(name)
        if node is None:
            raise refusal(f"the run has no node {name!r}", "ksearch tree draws the nodes")
        incumbent = self.chronicle.state.incumbent
        if incumbent is not None and incumbent.node_id == name:  # attached to its node when its branch ends
            return self._by_id[incumbent.candidate_id]
        if node.best is None:
            state = node.state.replace("_", " ")
            hint = "a round's number names any candidate that was evaluated"
            raise refusal(f"node {name} has no correct candidate ({state})", hint)
        return self._by_id[node.best.candidate_id]

    def _with_id(self, name: str) -> Version:
        found = [known for known in self._by_id if len(name) >= _FEWEST_LETTERS and known.startswith(name.lower())]
        if len(found) > 1:
            raise refusal(f"{len(found)} candidates begin with {name!r}", "give more of its letters")
        if not found and name.isdigit():
            raise refusal(f"the run has no round {name}", self._known_rounds())
        if not found:
            raise refusal(
                f"the run has no candidate {name!r}",
                "name a round (7), a node (n3), a candidate's id, 'best', or 'base' of the other",
            )
        return self._by_id[found[0]]

    def _base_of(self, version: Version | None) -> Version | None:
        return self._by_id[version.base_id] if version and version.base_id else None

    def _known_rounds(self) -> str:
        return f"rounds 1 to {max(self._by_round)} were evaluated" if self._by_round else "nothing was evaluated yet"

    def _keep(self, written: CandidateWritten) -> None:
        candidate, branch = written.candidate, self._branches.get(written.branch_id)
        if candidate is not None and branch is not None and candidate.candidate_id not in self._by_id:
            self._by_id[candidate.candidate_id] = Version(
                candidate_id=candidate.candidate_id,
                node_id=branch.node_id,
                base_id=branch.base_id,
                candidate=candidate,
            )

    def _fold(self, fact: Fact) -> None:
        if isinstance(fact, BranchStarted):
            self._branches[fact.branch_id] = fact
        elif isinstance(fact, AttemptFinished) and fact.candidate_id in self._by_id and fact.round:
            self._by_round[fact.round] = fact.candidate_id
            self._by_id[fact.candidate_id] = msgspec.structs.replace(
                self._by_id[fact.candidate_id],
                round=fact.round,
                fate=fact.fate,
                speedup=fact.speedup,
                credit=fact.credit,
            )
        elif isinstance(fact, ConfirmationFinished) and fact.candidate_id in self._by_id:
            self._by_id[fact.candidate_id] = msgspec.structs.replace(
                self._by_id[fact.candidate_id],
                fate=fact.fate,
                speedup=fact.speedup,
                credit=fact.credit,
                screen_speedup=fact.screen_speedup,
            )


def diff_lines(older: Version | None, newer: Version | None) -> Iterator[str]:
    """Yield a unified diff over all files of both versions; a missing last newline is no difference."""
    before, after = _texts(older), _texts(newer)
    for path in dict.fromkeys([*before, *after]):
        left, right = (
            f"{path}\t({version.said})" if version and path in texts else "/dev/null"
            for version, texts in ((older, before), (newer, after))
        )
        yield from unified_diff(before.get(path, []), after.get(path, []), left, right, lineterm="")


def _texts(version: Version | None) -> dict[str, list[str]]:
    """Return path → lines; the reference is no candidate and has none."""
    return {file.path: file.text.splitlines() for file in version.candidate.files} if version else {}
