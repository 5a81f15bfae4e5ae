"""The attempts of a run: prompts, answers, outcomes; and the names, versions and origins of candidates.

The reference (the root, `n0`) is no version: where it is meant there is nothing yet, which is `None` here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Final

import msgspec

from actors.bus.journal import read_journal
from actors.planner.core.state import path_titles
from actors.planner.jobs import whole_records
from ksearch_async.errors import refusal, suggestion
from ksearch_async.evaluation.tasks import marks_of
from ksearch_async.runs.folder import RunFolder, find_run
from ksearch_async.runs.state import Chronicle
from messages.base import ROOT, Usage
from messages.calls import CallForm
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten
from messages.facts import AttemptFinished, BranchStarted, ConfirmationFinished, Decided, Fact, WriteRequested
from messages.tasks import Candidate, Target, TaskSpec, TensorSpec
from messages.verdicts import worth_text

UNDER_WAY = "under way"


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a coder."""

    node_id: str
    number: int
    """Of the node's answers, from 1, in the order in which they came."""
    job_id: str
    branch_id: str
    mode: str
    """`apply`, `debug` or `improve`."""
    fate: str = UNDER_WAY
    outcome: str = ""
    round: int = 0
    """0: nothing was evaluated for it."""
    candidate_id: str | None = None
    base_id: str | None = None
    """Candidate that the coder was to change: the branch's latest, or else what the branch builds on; null: none."""
    complaint: str = ""
    declined: str = ""
    notes: tuple[str, ...] = ()
    """What had to be put right to read the answer."""
    model: str
    finish_reason: str
    latency_s: float
    usage: Usage
    prompt: str
    answer: str


def read_attempts(records: Iterable[Record]) -> dict[str, list[Told]]:
    """Return the answers by node, in the order in which they came."""
    reader = _Reader()
    for record in whole_records(records):
        if isinstance(record.body, CandidateWritten):
            reader.answered(record.body)
        elif isinstance(record.body, Decided):
            for fact in record.body.facts:
                reader.decided(fact)
    return reader.by_node


def attempt_of(attempts: dict[str, list[Told]], node_id: str, number: int | None) -> Told:
    """Return one answer for a node, the last one where no number is given.

    Raises:
        ConfigError: there is none.
    """
    found = attempts.get(node_id, [])
    if not found:
        raise refusal(
            f"no coder has answered for {node_id!r}", suggestion(node_id, attempts, "ksearch tree lists nodes")
        )
    if number is None:
        return found[-1]
    if not 0 < number <= len(found):
        raise refusal(f"{node_id!r} has {len(found)} attempts, and no number {number}")
    return found[number - 1]


class _Reader:
    """Folds a journal's records."""

    def __init__(self) -> None:
        self.by_node: dict[str, list[Told]] = {}
        self._nodes: dict[str, str] = {}
        """Node by branch."""
        self._asked: dict[str, WriteRequested] = {}
        """By job."""
        self._open: dict[tuple[str, int], tuple[str, int]] = {}
        """Node and place of the answer that a branch's draft awaits the outcome of."""

    def answered(self, event: CandidateWritten) -> None:
        """Take an answer; one that nobody asked for any more belongs to no node."""
        asked = self._asked.get(event.job_id)
        node_id = self._nodes.get(event.branch_id)
        if asked is None or node_id is None:
            return
        told = self.by_node.setdefault(node_id, [])
        self._open[asked.branch_id, asked.draft] = (node_id, len(told))
        told.append(
            Told(
                node_id=node_id,
                number=len(told) + 1,
                job_id=event.job_id,
                branch_id=event.branch_id,
                mode=asked.mode,
                candidate_id=event.candidate.candidate_id if event.candidate else None,
                base_id=asked.current_id or asked.base_id,
                complaint=event.complaint,
                declined=event.declined,
                notes=event.notes,
                model=event.model,
                finish_reason=event.finish_reason,
                latency_s=event.latency_s,
                usage=event.usage,
                prompt=event.prompt,
                answer=event.answer,
            )
        )

    def decided(self, fact: Fact) -> None:
        """Take a decision."""
        match fact:
            case BranchStarted():
                self._nodes[fact.branch_id] = fact.node_id
            case WriteRequested():
                self._asked[fact.job_id] = fact
            case AttemptFinished():
                self._finished(fact)
            case _:
                pass

    def _finished(self, fact: AttemptFinished) -> None:
        place = self._open.get((fact.branch_id, fact.draft))
        if place is None:
            return
        node_id, index = place
        told = self.by_node[node_id]
        told[index] = msgspec.structs.replace(
            told[index], fate=fact.fate, outcome=fact.outcome, round=fact.round or told[index].round
        )


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


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with what the journal knows of it."""

    run_id: str
    task: TaskSpec
    tensors: tuple[TensorSpec, ...]
    call: CallForm | None
    """How it is called; null: with the tensors alone."""
    target: Target
    candidate: Candidate
    found_by: tuple[str, ...] = ()
    """Titles of the actions that led to it."""
    round: int | None = None
    marks: tuple[str, ...] = ()
    """What is to be known of the task."""
    evaluated: CandidateEvaluated | None = None
    """The verdict that counts: the latest confirmation, else the latest; null: it was never judged."""
    evaluated_at: str = ""
    """ISO 8601, UTC."""


def from_run(name: str, runs_dir: Path, which: str = BEST) -> Provenance:
    """Read what a run knows of one of its candidates.

    Args:
        name: the run's id, its folder, or `latest`.
        runs_dir: where runs are looked for.
        which: a round's number, a node's id, the beginning of a candidate's id, or `best`.

    Raises:
        ConfigError: there is no such run, or it has no such candidate.
        messages.base.BusError: its journal is damaged, or of a newer release.
    """
    return read_provenance(find_run(name, runs_dir), which)


def read_provenance(folder: RunFolder, which: str = BEST) -> Provenance:
    """Do what `from_run` does, for a folder.

    Raises:
        ConfigError: the run has no such candidate.
        messages.base.BusError: as `from_run`.
    """
    verdicts: dict[str, tuple[CandidateEvaluated, str]] = {}
    versions = Versions(_noting(read_journal(folder.journal), verdicts))
    chronicle = versions.chronicle
    version = _named(versions, which)
    started = chronicle.started
    if started is None:
        raise refusal(f"run {folder.run_id!r} has not begun")
    evaluated, at = verdicts.get(version.candidate_id, (None, ""))
    return Provenance(
        run_id=folder.run_id,
        task=started.task,
        tensors=started.description.tensors,
        call=next(iter(started.description.calls), None),
        target=started.target,
        candidate=version.candidate,
        marks=marks_of(started.description),
        found_by=path_titles(chronicle.state, version.node_id),
        round=version.round,
        evaluated=evaluated,
        evaluated_at=at,
    )


def _named(versions: Versions, which: str) -> Version:
    untimed = versions.chronicle.untimed()
    if which == BEST and versions.chronicle.state.incumbent is None and untimed:
        said = "the run has no best: its correct candidates could not be timed"
        raise refusal(said, f"--candidate names one of them: {', '.join(one[:8] for one in untimed[:5])}")
    version = versions.named(which)
    if version is None:
        raise refusal(f"{which!r} is the reference, no candidate")
    return version


def _noting(records: Iterable[Record], verdicts: dict[str, tuple[CandidateEvaluated, str]]) -> Iterator[Record]:
    for record in records:
        body = record.body
        if isinstance(body, CandidateEvaluated):
            before = verdicts.get(body.candidate_id)
            if before is None or body.purpose == "confirm" or before[0].purpose != "confirm":
                verdicts[body.candidate_id] = (body, record.at)
        yield record
