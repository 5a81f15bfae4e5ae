"""Where in a run's stream the records lie that tell of a node or of a candidate. Numbers only: the texts stay there."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from messages.codec import Body, Record
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, RunResumed, RunStarted
from messages.facts import AttemptFinished, BranchStarted, Decided, Fact, SpendRecorded, WriteRequested
from messages.steering import Inject, SteeringRequested
from messages.tasks import Candidate

_Places = partial(array, "Q")


class Index:
    """Takes a run's records, one after the other, and remembers their places."""

    def __init__(self) -> None:
        self.opening = _Places()
        """Of the sessions' first records."""
        self.spending = _Places()
        """Of decisions that record what an answer cost."""
        self.of_node: dict[str, array[int]] = defaultdict(_Places)
        """Of branches, questions, answers and outcomes."""
        self.of_candidate: dict[str, array[int]] = defaultdict(_Places)
        """Of builds and verdicts."""
        self.origin: dict[str, int] = {}
        """Of the record that brought a candidate's text first."""
        self.found_at: dict[str, tuple[str, int]] = {}
        """Node and round of a candidate, once its attempt has its outcome."""
        self._node_of: dict[str, str] = {}
        """By branch."""

    def take(self, record: Record, place: int) -> None:
        """Take a record that lies there."""
        body = record.body
        for candidate in candidates_of(body):
            self.origin.setdefault(candidate.candidate_id, place)
        match body:
            case Decided(facts=facts):
                for fact in facts:
                    self._take_fact(fact, place)
            case CandidateWritten(branch_id=branch_id):
                self._note(self._node_of.get(branch_id, ""), place)
            case CandidateBuilt(candidate_id=candidate_id) | CandidateEvaluated(candidate_id=candidate_id):
                self.of_candidate[candidate_id].append(place)
            case RunStarted() | RunResumed():
                self.opening.append(place)
            case _:
                pass

    def _take_fact(self, fact: Fact, place: int) -> None:
        match fact:
            case BranchStarted():
                self._node_of[fact.branch_id] = fact.node_id
                self._note(fact.node_id, place)
            case WriteRequested():
                self._note(self._node_of.get(fact.branch_id, ""), place)
            case AttemptFinished():
                node_id = self._node_of.get(fact.branch_id, "")
                self._note(node_id, place)
                if fact.candidate_id:
                    self.found_at.setdefault(fact.candidate_id, (node_id, fact.round))
            case SpendRecorded():
                self.spending.append(place)
            case _:
                pass

    def _note(self, node_id: str, place: int) -> None:
        if node_id:
            self.of_node[node_id].append(place)


def candidates_of(body: Body) -> Iterator[Candidate]:
    """Yield the candidates whose text a record brings."""
    match body:
        case CandidateWritten(candidate=Candidate() as candidate):
            yield candidate
        case SteeringRequested(order=Inject(candidate=candidate)):
            yield candidate
        case RunStarted():
            inherited = [node.candidate for node in body.heritage.nodes] if body.heritage else []
            yield from (each for each in (body.initial, body.solution, *inherited) if each is not None)
        case _:
            pass
