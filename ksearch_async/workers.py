"""What builds and judges candidates: chosen by where the task comes from, loaded only where it is used."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import msgspec

from evaluators.base import Builder, Evaluator
from ksearch_async.config import API_KEY_VARIABLES, RunConfig
from ksearch_async.models import Dialect
from ksearch_async.refusals import refusal
from messages.base import Language
from messages.errors import EvaluatorError
from messages.tasks import Candidate, Target, TaskDescription, TaskSpec


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """Who builds and judges."""

    builder: Builder
    evaluator: Evaluator
    describe: Callable[[], Awaitable[TaskDescription]]
    """Says what models are told of the task.

    Raises:
        ConfigError: the task cannot be used.
        messages.errors.EvaluatorError: the judge is at fault.
    """


def read_task(config: RunConfig) -> TaskSpec:
    """Return the task that a configuration names.

    Raises:
        ConfigError: there is none, or it is no task.
    """
    program = config.program
    if program.evaluator is not None:
        from evaluators.programs.task import load_program  # noqa: PLC0415 - each source is loaded only where it is used

        return load_program(config.task, program.evaluator, timeout_s=program.timeout_s, memory_gib=program.memory_gib)
    from evaluators.tasks import load_task  # noqa: PLC0415

    return load_task(config.task)


def check_model(task: TaskSpec, dialect: Dialect) -> None:
    """Refuse a model that can do nothing for a task.

    Raises:
        ConfigError: says what to name instead.
    """
    if task.source == "program" and dialect == "offline":
        raise refusal("the built-in rules write kernels and know nothing of programs", "name a model: --model NAME")


def initial_program(task: TaskSpec) -> Candidate | None:
    """Return the program that a search starts from, where it is a candidate like any other."""
    if task.source != "program":
        return None
    from evaluators.programs.task import initial_candidate  # noqa: PLC0415

    return initial_candidate(task)


async def find_target(task: TaskSpec, language: Language) -> Target:
    """Say what this machine builds for; runs a compiler once, where there is one.

    Raises:
        ConfigError: there is no usable compiler.
    """
    if task.source == "program":
        from evaluators.programs.task import probe_interpreter  # noqa: PLC0415

        return probe_interpreter()
    from evaluators.target import probe_target  # noqa: PLC0415

    try:
        return await anyio.to_thread.run_sync(probe_target, language)
    except EvaluatorError as error:
        raise refusal(str(error), "ksearch doctor checks what a search needs") from error


@asynccontextmanager
async def open_workers(
    task: TaskSpec, language: Language, artifacts: Path, *, evaluators: int
) -> AsyncIterator[Workers]:
    """Make builder and evaluator, and end their processes afterwards.

    Args:
        task: what they are to work on.
        language: what candidates are written in.
        artifacts: the store of what is built.
        evaluators: candidates judged at once.
    """
    open_for = _program_workers if task.source == "program" else _kernel_workers
    workers = open_for(task, language, artifacts, evaluators)
    try:
        yield workers
    finally:
        await workers.evaluator.aclose()


def _program_workers(task: TaskSpec, _language: Language, _artifacts: Path, evaluators: int) -> Workers:
    from evaluators.programs.evaluator import ProgramBuilder, ProgramEvaluator  # noqa: PLC0415
    from evaluators.programs.task import describe_program  # noqa: PLC0415

    async def describe() -> TaskDescription:
        return describe_program(task)

    environment = {name: value for name, value in os.environ.items() if name not in API_KEY_VARIABLES}
    evaluator = ProgramEvaluator(slots=evaluators, environment=environment)
    return Workers(builder=ProgramBuilder(), evaluator=evaluator, describe=describe)


def _kernel_workers(task: TaskSpec, language: Language, artifacts: Path, evaluators: int) -> Workers:
    from evaluators.builder import LocalBuilder  # noqa: PLC0415
    from evaluators.local import LocalEvaluator  # noqa: PLC0415

    evaluator = LocalEvaluator(artifacts, slots=evaluators)

    async def describe() -> TaskDescription:
        return await evaluator.describe_task(task, language)

    return Workers(builder=LocalBuilder(artifacts), evaluator=evaluator, describe=describe)
