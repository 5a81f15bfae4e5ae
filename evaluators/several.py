"""Several like devices of one host as one evaluator: a candidate goes to whichever is free.

`SeveralEvaluators(evaluators)`: an `Evaluator`; at most one candidate at a time on each.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from evaluators.base import EvaluationReport
from evaluators.health import SickDeviceError
from evaluators.local import LocalEvaluator
from messages.base import Language
from messages.commands import EvaluateCandidate
from messages.tasks import TaskDescription, TaskSpec


class SeveralEvaluators:
    """An `Evaluator` that is several. A sick device is left out while another one works."""

    def __init__(self, evaluators: Sequence[LocalEvaluator]) -> None:
        """Take them over.

        Args:
            evaluators: at least one, each for a device of its own.
        """
        self._all = tuple(evaluators)
        self._idle = list(evaluators)
        self._changed = anyio.Condition()

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate on a device that is free.

        Raises:
            SickDeviceError: no device works.
            EvaluatorError: judge or artifact is at fault.
            ConfigError: the problem cannot be used.
        """
        while True:
            evaluator = await self._take()
            try:
                return await evaluator.evaluate(job)
            except SickDeviceError:
                if all(other.is_resting for other in self._all):
                    raise
            finally:
                await self._give_back(evaluator)

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        """See `LocalEvaluator.describe_task`."""
        fit = next((evaluator for evaluator in self._all if not evaluator.is_resting), self._all[0])
        return await fit.describe_task(task, language)

    async def aclose(self) -> None:
        """End all processes."""
        async with anyio.create_task_group() as group:
            for evaluator in self._all:
                group.start_soon(evaluator.aclose)

    async def _take(self) -> LocalEvaluator:
        """Return one that is free and works; where none works, one that says so."""
        async with self._changed:
            while True:
                fit = [evaluator for evaluator in self._idle if not evaluator.is_resting]
                if not fit and all(evaluator.is_resting for evaluator in self._all):
                    fit = self._idle
                if fit:
                    self._idle.remove(chosen := fit[0])
                    return chosen
                await self._changed.wait()

    async def _give_back(self, evaluator: LocalEvaluator) -> None:
        with anyio.CancelScope(shield=True):
            async with self._changed:
                self._idle.append(evaluator)
                self._changed.notify_all()
