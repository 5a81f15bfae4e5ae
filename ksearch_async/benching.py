"""Evaluates one candidate for each of many tasks, and keeps going where a task cannot be used.

A row per task: what became of its candidate, how fast it is, and what is to be known of the task. Nothing here knows a
benchmark; its metrics are made from the rows (`evaluators/tasks/*/scoring.py`).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import anyio
import msgspec

from evaluators.tasks import reference_candidate
from ksearch_async.evaluation import EvaluationSettings
from ksearch_async.judging import Judge, open_judge
from ksearch_async.sources import read_kernel
from messages.errors import BoundaryError, ConfigError
from messages.intake import Fitness, Intake
from messages.tasks import Candidate, TaskSpec
from messages.verdicts import Measured, Verdict, fate_of, reason_of

UNUSABLE, FAILED, ABSENT = "unusable", "evaluator_failed", "no_candidate"
"""What else may come of a task than a verdict: its problem cannot be judged here, the evaluator (or a model) failed, or
there is no candidate for it."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A task and what is to be evaluated for it."""

    task: TaskSpec
    source: Path | Candidate | None = None
    """Null: there is none; the task is counted all the same."""
    is_reference: bool = False
    """The task's own reference takes the candidate's place."""
    why_none: str = "there is no candidate for it"
    """What is said of a task without one."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one task."""

    task: str
    task_id: str
    fate: str
    """Tag of the verdict, or `unusable`, `evaluator_failed`, `no_candidate`."""
    reason: str = ""
    verdict: Verdict | None = None
    fitness: Fitness | None = None
    """Whether the task can tell a kernel from a trick; null: it was not looked at."""
    marks: tuple[str, ...] = ()
    """Why it is not simply fit."""
    device: str = ""
    elapsed_s: float
    """Wall-clock, start of all processes included."""

    @property
    def speedup(self) -> float | None:
        """Against the reference; null unless it was measured and timed."""
        return self.verdict.speedup_vs_reference if isinstance(self.verdict, Measured) else None

    @property
    def pairs(self) -> int:
        """Timed pairs of calls of candidate and reference."""
        return self.verdict.pairs if isinstance(self.verdict, Measured) else 0

    @property
    def checked_calls(self) -> int:
        """Calls on fresh inputs whose outputs were compared with the reference's: all, timed ones included."""
        return self.pairs + len(self.verdict.checks) if isinstance(self.verdict, Measured) else 0


OnRow: TypeAlias = Callable[[int, Row], object]
Find: TypeAlias = Callable[[Case], Awaitable[Case]]
"""Says what is to be evaluated for a case, by a search."""


async def bench(
    cases: Sequence[Case],
    settings: EvaluationSettings,
    *,
    find: Find | None = None,
    at_once: int = 1,
    on_row: OnRow | None = None,
) -> list[Row]:
    """Evaluate each case in processes of its own, and return a row for each, in their order.

    Args:
        cases: tasks with their candidates.
        settings: how they are evaluated.
        find: what is done first for each; null: nothing.
        at_once: cases in work at once; of those on one device one is timed at a time.
        on_row: called with a case's place and its row, as each is done.
    """
    rows: dict[int, Row] = {}
    limit = anyio.CapacityLimiter(at_once)

    async def one(place: int, case: Case) -> None:
        async with limit:
            rows[place] = await evaluate_case(case, settings, find)
        if on_row is not None:
            on_row(place, rows[place])

    async with anyio.create_task_group() as group:
        for place, case in enumerate(cases):
            group.start_soon(one, place, case)
    return [rows[place] for place in range(len(cases))]


async def evaluate_case(case: Case, settings: EvaluationSettings, find: Find | None = None) -> Row:
    """Evaluate one case. What is wrong with its task, or with the evaluator, is said in the row."""
    begun = time.perf_counter()
    row = Row(task=case.task.name, task_id=case.task.task_id, fate=ABSENT, elapsed_s=0.0)
    try:
        found = await find(case) if find is not None else case
        row = msgspec.structs.replace(row, reason=found.why_none)
        source = reference_candidate(found.task) if found.is_reference else found.source
        if source is not None:
            own = _own(settings, found.task, source, is_reference=found.is_reference)
            async with open_judge(found.task, **own) as judge:
                row = await _judged(row, judge, source)
    except ConfigError as error:
        row = msgspec.structs.replace(row, fate=UNUSABLE, reason=str(error))
    except BoundaryError as error:
        row = msgspec.structs.replace(row, fate=FAILED, reason=str(error))
    return msgspec.structs.replace(row, elapsed_s=time.perf_counter() - begun)


def _own(
    settings: EvaluationSettings, task: TaskSpec, source: Path | Candidate, *, is_reference: bool
) -> EvaluationSettings:
    language = read_kernel(source, None if isinstance(source, Candidate) else settings.get("language"), task).language
    own: EvaluationSettings = {**settings, "language": language}
    if is_reference:
        own["role"] = "baseline"
    return own


async def _judged(row: Row, judge: Judge, source: Path | Candidate) -> Row:
    evaluation = await judge.evaluate(source)
    intake: Intake | None = (await judge.describe()).intake
    return msgspec.structs.replace(
        row,
        fate=fate_of(evaluation.verdict),
        reason=reason_of(evaluation.verdict),
        verdict=evaluation.verdict,
        device=evaluation.device,
        fitness=intake.fitness if intake else None,
        marks=intake.findings if intake else (),
    )


def row_object(row: Row) -> dict[str, object]:
    """Return what `--json` says of a row."""
    told: dict[str, object] = {"task": row.task, "task_id": row.task_id, "fate": row.fate, "reason": row.reason}
    verdict = row.verdict
    if isinstance(verdict, Measured) and verdict.speedup_interval is not None:
        told |= {
            "speedup_vs_reference": verdict.speedup_vs_reference,
            "speedup_interval": [verdict.speedup_interval.low, verdict.speedup_interval.high],
            "latency_us": verdict.latency_us,
            "reference_latency_us": verdict.reference_latency_us,
        }
        if verdict.baseline:
            told |= {"baseline": verdict.baseline, "speedup_vs_baseline": verdict.speedup_vs_baseline}
    told |= {"pairs": row.pairs, "checked_calls": row.checked_calls, "device": row.device}
    return told | {"fitness": row.fitness, "findings": row.marks, "seconds": round(row.elapsed_s, 1)}
