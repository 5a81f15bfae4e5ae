"""The near side: a builder and an evaluator that send their work over a line.

- `RemoteBuilder(line: Line)`, `RemoteEvaluator(line: Line, builder: RemoteBuilder)`
"""

from __future__ import annotations

from typing import Protocol, TypeVar

import msgspec

from evaluators.base import BuildReport, EvaluationReport
from evaluators.remote.words import (
    Build,
    Describe,
    Described,
    Failed,
    Judge,
    Judged,
    Probe,
    Probed,
    Request,
    WasBuilt,
    answer_decoder,
    encoder,
)
from messages.base import ConfigError, EvaluatorError, Language
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Target, TaskDescription, TaskSpec

_Expected = TypeVar("_Expected", Probed, Described, WasBuilt, Judged)


class Line(Protocol):
    """Carries a request to the far side and its answer back."""

    async def call(self, request: bytes) -> bytes:
        """Return the answer of `Far.answer`. Several calls may be in flight.

        Raises:
            EvaluatorError: the far side cannot be reached.
        """

    async def aclose(self) -> None:
        """Let the far side go."""


class RemoteBuilder:
    """A `Builder` on the far side."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.jobs: dict[str, BuildCandidate] = {}
        """Build jobs by artifact, for the evaluator."""

    async def build(self, job: BuildCandidate) -> BuildReport:
        """See `Builder.build`."""
        report = (await _asked(self._line, Build(job=job), WasBuilt)).report
        if isinstance(report.outcome, Built):
            self.jobs[report.outcome.artifact_id] = job
        return report


class RemoteEvaluator:
    """An `Evaluator` on the far side, for artifacts that a `RemoteBuilder` built there."""

    def __init__(self, line: Line, builder: RemoteBuilder) -> None:
        self._line, self._builder = line, builder
        self._is_closed = False

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """See `Evaluator.evaluate`.

        Raises:
            EvaluatorError: the far side failed or cannot be reached, or the candidate was not built there.
        """
        if self._is_closed:
            raise EvaluatorError("the evaluator was closed")
        built = self._builder.jobs.get(job.artifact_id)
        if built is None:
            raise EvaluatorError(f"artifact {job.artifact_id[:8]} was not built by way of this process")
        return (await _asked(self._line, Judge(built=built, job=job), Judged)).report

    async def probe(self, language: Language) -> Target:
        """Return the far side's target.

        Raises:
            EvaluatorError: it has no usable compiler or device, or cannot be reached.
        """
        return (await _asked(self._line, Probe(language=language), Probed)).target

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """Run the reference there once and describe the task.

        Raises:
            ConfigError: the problem cannot be used.
            EvaluatorError: the far side failed or cannot be reached.
        """
        return (await _asked(self._line, Describe(task=task, language=language), Described)).description

    async def aclose(self) -> None:
        """Let the far side go."""
        self._is_closed = True
        await self._line.aclose()


async def _asked(line: Line, request: Request, expected: type[_Expected]) -> _Expected:
    """Return the answer to a request, or raise its error."""
    text = await line.call(encoder.encode(request))
    try:
        answer = answer_decoder.decode(text)
    except msgspec.MsgspecError as error:
        raise EvaluatorError(f"the far side answered what is not understood: {error}", permanent=True) from error
    if isinstance(answer, Failed):
        if answer.boundary == "config":
            raise ConfigError(answer.text)
        raise EvaluatorError(answer.text, permanent=answer.permanent)
    if not isinstance(answer, expected):
        raise EvaluatorError(f"the far side answered {type(answer).__name__}, not {expected.__name__}", permanent=True)
    return answer
