"""Names, versions and origins of a run's candidates, and the model answers that produced them.

The reference (the root, `n0`) is not a version: it is `None` here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import unified_diff
from typing import Final

import msgspec

from actors.planner.core.state import path_titles
from ksearch_async.errors import refusal, suggestion
from ksearch_async.evaluation.tasks import marks_of
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.runs.run import Archive, Run, Told
from messages.base import ROOT
from messages.calls import CallForm
from messages.events import CandidateEvaluated
from messages.facts import AttemptFinished, ConfirmationFinished
from messages.tasks import Candidate, Target, TaskSpec, TensorSpec
from messages.verdicts import worth_text

BEST: Final = "best"
BASE: Final = ("base", "parent")
"""Names for the base of the other version: the best candidate of the parent node of its branch."""
_FEWEST_LETTERS = 4
"""Fewest characters of a candidate's id that identify it."""


def archive_of(run: Run) -> Archive:
    """Return the texts of a run that was read with them."""
    if run.archive is None:
        raise RuntimeError("the run was read without its texts")
    return run.archive


def attempt_of(run: Run, node_id: str, number: int | None) -> Told:
    """Return an answer for a node: the one with this number, or the last.

    Raises:
        ConfigError: there is none.
    """
    archive = archive_of(run)
    found = archive.told(node_id)
    if not found:
        hint = suggestion(node_id, archive.answers, "ksearch tree lists nodes")
        raise refusal(f"no coder has answered for {node_id!r}", hint)
    if number is None:
        return found[-1]
    if not 0 < number <= len(found):
        raise refusal(f"{node_id!r} has {len(found)} attempts, and no number {number}")
    return found[number - 1]


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, with its place in the run."""

    candidate_id: str
    node_id: str
    base_id: str | None
    """Candidate that its branch started from; null: the reference."""
    round: int | None = None
    """Null if it was not evaluated."""
    fate: str | None = None
    """Status of its latest measurement. Speedup and credit are of the same measurement."""
    speedup: float | None = None
    credit: float | None = None
    screen_speedup: float | None = None
    """Speedup in its first measurement, before the one that counts; None if it was measured once."""
    candidate: Candidate

    @property
    def said(self) -> str:
        """Return its name for people: `round 5, n3, 2.06x`."""
        result = (self.fate or "no verdict").replace("_", " ")
        if self.credit is not None:
            is_least = self.fate == "unstable" and self.speedup == self.credit
            result = worth_text(self.credit, self.speedup, is_least=is_least)
        place = f"round {self.round}" if self.round else f"candidate {self.candidate_id[:8]}"
        return f"{place}, {self.node_id}, {result}"


class Versions:
    """The candidates of a run. A candidate that was written again keeps its first place."""

    def __init__(self, run: Run) -> None:
        """Read them from a run that was read with its texts."""
        self.run = run
        self._by_id: dict[str, Version] = {}
        self._by_round: dict[int, str] = {}
        for key, (candidate, branch) in archive_of(run).written.items():
            self._by_id[key] = Version(
                candidate_id=key, node_id=branch.node_id, base_id=branch.base_id, candidate=candidate
            )
        for tried in run.tried:
            if tried.fact.round and tried.fact.candidate_id in self._by_id:
                self._by_round[tried.fact.round] = tried.fact.candidate_id
                self._measure(tried.fact, round=tried.fact.round)
        for confirmed in run.confirmations:
            if confirmed.candidate_id in self._by_id:
                self._measure(confirmed, screen_speedup=confirmed.screen_speedup)

    def _measure(self, fact: AttemptFinished | ConfirmationFinished, **more: float) -> None:
        known = self._by_id[fact.candidate_id or ""]
        self._by_id[known.candidate_id] = msgspec.structs.replace(
            known, fate=fact.fate, speedup=fact.speedup, credit=fact.credit, **more
        )

    def pair(self, a: str | None, b: str | None) -> tuple[Version | None, Version | None]:
        """Return the two versions to compare.

        Args:
            a: the older one; null: the base of `b`.
            b: the newer one. If null, `a` is the newer one and is compared with its base; if both are null, the best
                is.

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
        """Return the version named by a round's number, a node's id, the beginning of a candidate's id, or `best`.

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
        incumbent = self.run.state.incumbent
        if incumbent is None:
            is_timed = bool(self.run.fates["measured"])
            why = "nothing that was timed has been confirmed" if is_timed else "no candidate was correct and timed"
            raise refusal(f"the run has no best kernel: {why}", self._known_rounds())
        return self._by_id[incumbent.candidate_id]

    def _of_node(self, name: str) -> Version:
        node = self.run.state.nodes.get(name)
        if node is None:
            raise refusal(f"the run has no node {name!r}", "ksearch tree draws the nodes")
        incumbent = self.run.state.incumbent
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


def diff_lines(older: Version | None, newer: Version | None) -> Iterator[str]:
    """Yield a unified diff over all files of both versions. A missing newline at the end is not a difference."""
    before, after = _texts(older), _texts(newer)
    for path in dict.fromkeys([*before, *after]):
        left, right = (
            f"{path}\t({version.said})" if version and path in texts else "/dev/null"
            for version, texts in ((older, before), (newer, after))
        )
        yield from unified_diff(before.get(path, []), after.get(path, []), left, right, lineterm="")


def _texts(version: Version | None) -> dict[str, list[str]]:
    """Return the lines of each file by path; none for the reference."""
    return {file.path: file.text.splitlines() for file in version.candidate.files} if version else {}


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate, with everything the journal holds about it."""

    run_id: str
    task: TaskSpec
    tensors: tuple[TensorSpec, ...]
    call: CallForm | None
    """Its call form; null: it takes tensors only."""
    target: Target
    candidate: Candidate
    found_by: tuple[str, ...] = ()
    """Titles of the actions that led to it."""
    round: int | None = None
    marks: tuple[str, ...] = ()
    """Remarks on the task."""
    evaluated: CandidateEvaluated | None = None
    """The verdict that counts: of the latest confirmation, else the latest one; null: it was never evaluated."""
    evaluated_at: str = ""
    """ISO 8601, UTC."""


def read_provenance(folder: RunFolder, which: str = BEST) -> Provenance:
    """Return everything that a run's journal holds about one candidate.

    Args:
        folder: the run's folder.
        which: a round's number, a node's id, the beginning of a candidate's id, or `best`.

    Raises:
        ConfigError: the run has no such candidate.
        messages.base.BusError: its journal is damaged, or written by a newer release.
    """
    run = read_run(folder, with_texts=True)
    version = _named(run, which)
    started = run.started
    if started is None:
        raise refusal(f"run {folder.run_id!r} has not begun")
    judged = archive_of(run).verdicts.get(version.candidate_id, [])
    confirmed = [each for each in judged if each[0].purpose == "confirm"]
    evaluated, at = (confirmed or judged)[-1] if judged else (None, "")
    return Provenance(
        run_id=folder.run_id,
        task=started.task,
        tensors=started.description.tensors,
        call=next(iter(started.description.calls), None),
        target=started.target,
        candidate=version.candidate,
        marks=marks_of(started.description),
        found_by=path_titles(run.state, version.node_id),
        round=version.round,
        evaluated=evaluated,
        evaluated_at=at,
    )


def _named(run: Run, which: str) -> Version:
    untimed = run.untimed()
    if which == BEST and run.state.incumbent is None and untimed:
        said = "the run has no best: its correct candidates could not be timed"
        raise refusal(said, f"--candidate names one of them: {', '.join(one[:8] for one in untimed[:5])}")
    version = Versions(run).named(which)
    if version is None:
        raise refusal(f"{which!r} is the reference, no candidate")
    return version
