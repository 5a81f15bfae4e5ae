"""The far side: answers requests with the builder and evaluator of its own machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import anyio.to_thread

from evaluators.base import Builder, Evaluator
from evaluators.remote.words import (
    Answer,
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
    encoder,
    request_decoder,
)
from messages.base import ConfigError, EvaluatorError, Language
from messages.events import Built
from messages.tasks import Target, TaskDescription, TaskSpec


class DescribingEvaluator(Evaluator, Protocol):
    """An evaluator that can describe a task."""

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """Run the reference once and describe the task.

        Raises:
            ConfigError: the problem cannot be used.
            EvaluatorError: the judge failed.
        """


class Far:
    """Answers requests, one after the other or several at once, on one event loop."""

    def __init__(self, builder: Builder, evaluator: DescribingEvaluator, probe: Callable[[Language], Target]) -> None:
        """Begin.

        Args:
            builder: fills the store that the evaluator reads.
            evaluator: judges.
            probe: returns the machine's target; may raise EvaluatorError.
        """
        self._builder, self._evaluator, self._probe = builder, evaluator, probe

    async def answer(self, request: bytes) -> bytes:
        """Return the answer to a request, which may be one of our errors."""
        try:
            answer = await self._answer(request_decoder.decode(request))
        except ConfigError as error:
            answer = Failed(boundary="config", text=str(error))
        except EvaluatorError as error:
            answer = Failed(boundary="evaluator", text=str(error), permanent=error.permanent)
        return encoder.encode(answer)

    async def _answer(self, request: Request) -> Answer:
        match request:
            case Probe(language=language):
                return Probed(target=await anyio.to_thread.run_sync(self._probe, language))
            case Describe(task=task, language=language):
                return Described(description=await self._evaluator.describe_task(task, language))
            case Build(job=job):
                return WasBuilt(report=await self._builder.build(job))
            case Judge(built=built, job=job):
                # On a machine that has it already this costs nothing.
                outcome = (await self._builder.build(built)).outcome
                if not isinstance(outcome, Built) or outcome.artifact_id != job.artifact_id:
                    raise EvaluatorError(f"the machine that judges built something else than {job.artifact_id[:8]}")
                return Judged(report=await self._evaluator.evaluate(job))

    async def aclose(self) -> None:
        """End the evaluator's processes."""
        await self._evaluator.aclose()


def open_far(store: Path, device: str) -> Far:
    """Return the far side of this machine.

    Args:
        store: folder for what is built.
        device: `cpu`, or `cuda:0`.

    Raises:
        ConfigError: there is no such device.
    """
    from evaluators.build.builder import LocalBuilder  # noqa: PLC0415 - the near side needs none of it
    from evaluators.hardware.target import probe_target  # noqa: PLC0415
    from evaluators.local import LocalEvaluator  # noqa: PLC0415

    def probe(language: Language) -> Target:
        return probe_target(language, device)

    return Far(LocalBuilder(store), LocalEvaluator(store, device=device), probe)
