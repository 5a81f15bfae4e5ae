"""Building a source and having it judged, as the tests of evaluators do."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from evaluators.build.builder import LocalBuilder
from evaluators.local import LocalEvaluator
from messages.commands import Purpose
from messages.events import Built
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import Measured, Verdict
from tests.evaluators.patience import patiently
from tests.evaluators.words import SMALL_TASK, build_job, evaluate_job


class Judging:
    """Builds a source and has it judged."""

    def __init__(
        self, builder: LocalBuilder, evaluator: LocalEvaluator, target: Target, written: Callable[[str], Candidate]
    ) -> None:
        self._builder = builder
        self._evaluator = evaluator
        self._target = target
        self._written = written

    async def __call__(
        self,
        text: str,
        task: TaskSpec = SMALL_TASK,
        *,
        purpose: Purpose = "screen",
        keep_above: float | None = None,
    ) -> Verdict:
        candidate = self._written(text)
        built = (await self._builder.build(build_job(candidate, self._target))).outcome
        assert isinstance(built, Built), built
        job = evaluate_job(candidate, built.artifact_id, self._target, task)
        job = msgspec.structs.replace(job, purpose=purpose, keep_above=keep_above)
        return (await self._evaluator.evaluate(job)).verdict

    async def measured(self, text: str, task: TaskSpec = SMALL_TASK, *, purpose: Purpose = "screen") -> Measured:
        """Build what is right, and return what was measured; the test is skipped where the host is too busy."""
        verdict = await patiently(lambda: self(text, task, purpose=purpose))
        assert isinstance(verdict, Measured), verdict
        return verdict
