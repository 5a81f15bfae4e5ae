"""The attempts of a run, as its journal has them: what a coder was asked, what it answered, what came of it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from actors.planner.texts import whole_records
from ksearch_async.refusals import refusal, suggestion
from messages.base import Usage
from messages.codec import Record
from messages.events import CandidateWritten
from messages.facts import AttemptFinished, BranchStarted, Decided, Fact, WriteRequested

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
