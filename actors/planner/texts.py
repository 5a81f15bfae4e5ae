"""What the planner looks up when it writes jobs and prompts: programs and verdicts, by content hash.

The search state holds ids only; the texts come from the events, live or replayed.
"""

from __future__ import annotations

from messages.codec import Body
from messages.errors import ProtocolError
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, RunStarted
from messages.tasks import Candidate
from messages.verdicts import DidNotBuild, Verdict


class Texts:
    """Texts of one run."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._candidates: dict[str, Candidate] = {}
        self._verdicts: dict[str, Verdict] = {}

    def take(self, body: Body) -> None:
        """Keep what the event brings."""
        match body:
            case RunStarted():
                self._started = body
                if body.initial is not None:
                    self._candidates[body.initial.candidate_id] = body.initial
            case CandidateWritten(candidate=Candidate() as candidate):
                self._candidates[candidate.candidate_id] = candidate
            case CandidateBuilt(outcome=DidNotBuild() as verdict):
                self._verdicts[body.candidate_id] = verdict
            case CandidateEvaluated():
                self._verdicts[body.candidate_id] = body.verdict
            case _:
                pass

    @property
    def started(self) -> RunStarted:
        """The run's first event.

        Raises:
            ProtocolError: the stream does not begin with it.
        """
        if self._started is None:
            raise ProtocolError("the event stream does not begin with run.started.v1")
        return self._started

    def candidate(self, candidate_id: str) -> Candidate:
        """Return a program that was written in this run.

        Raises:
            ProtocolError: there is none with this hash.
        """
        if candidate_id not in self._candidates:
            raise ProtocolError(f"the event stream holds no candidate {candidate_id!r}")
        return self._candidates[candidate_id]

    def verdict(self, candidate_id: str) -> Verdict | None:
        """Return the latest verdict on a program; none if it has none."""
        return self._verdicts.get(candidate_id)
