"""Where a candidate of a run comes from: its task, its target, its verdict, as the run's journal has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from actors.bus.journal import read_journal
from actors.planner.core.tree import path_titles
from ksearch_async.admission import marks_of
from ksearch_async.refusals import refusal
from ksearch_async.runs import RunFolder, find_run
from ksearch_async.versions import BEST, Version, Versions
from messages.calls import CallForm
from messages.codec import Record
from messages.events import CandidateEvaluated
from messages.tasks import Candidate, Target, TaskSpec, TensorSpec


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
        messages.errors.BusError: its journal is damaged, or of a newer release.
    """
    return read_provenance(find_run(name, runs_dir), which)


def read_provenance(folder: RunFolder, which: str = BEST) -> Provenance:
    """Do what `from_run` does, for a folder.

    Raises:
        ConfigError: the run has no such candidate.
        messages.errors.BusError: as `from_run`.
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
