"""`ksearch tasks`: the bundled problems, and what a problem asks for."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Final

import anyio
import cyclopts
import msgspec
from cyclopts import Parameter

from evaluators.local import LocalEvaluator
from evaluators.tasks import bundled_tasks, is_bundled, load_task, sizes_of, workloads_of
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.evaluation.tasks import ProblemFacts, facts_of
from ksearch_async.follow.logs import configure_logs
from ksearch_async.views.terminal import note, put, put_json, put_lines, put_raw, terminal_width
from ksearch_async.views.text import Column, table_lines
from messages.tasks import TaskDescription, TaskSpec, TensorSpec

tasks_app = cyclopts.App(name="tasks", group_commands=cyclopts.Group("Commands"), result_action="return_value")

_COLUMNS = (Column("tensor"), Column("role"), Column("shape"), Column("dtype", rank=1))
_SHAPES_OF: Final = "cpp"
"""Language in which `tasks show` describes a task; shapes and dtypes are the same in all."""


@tasks_app.default
def tasks_command(*, as_json: JsonFlag = False) -> int:
    """List the bundled problems.

    Args:
        as_json: Print one JSON object: `{"tasks": [{…}, …]}`.
    """
    problems = [facts_of(load_task(name), workloads_of(name)) for name in bundled_tasks()]
    if as_json:
        put_json({"tasks": problems})
        return exits.FOUND
    for problem in problems:
        put(problem.name)
        for line in _wrapped(problem.summary):
            put(f"    {line}")
        for line in _shape_lines(problem):
            put(f"    {line}")
    note("ksearch tasks show NAME tells more; NAME:gpu is the problem in its GPU size, NAME:shapes in several")
    return exits.FOUND


@tasks_app.command(name="show")
def show_task_command(
    task: str,
    /,
    *,
    tensors: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    prompt: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> int:
    """Show a problem: its text, its inputs, how to search on it.

    Args:
        task: A bundled problem's name (NAME or NAME:gpu), a problem file in KernelBench's format, a folder with a
            task.toml, or SOURCE:….
        tensors: Run the reference once (some seconds) and list every tensor with shape and dtype.
        prompt: Run the reference once and print the task's part of a prompt, and nothing else.
        as_json: Print one JSON object.
    """
    spec = load_task(task)
    facts = facts_of(spec, workloads_of(task) if task in bundled_tasks() else None)
    described = _described(spec) if tensors or prompt else None
    if prompt and described is not None and not as_json:
        put_raw(described.prompt)
    elif as_json:
        put_json(_as_object(spec, facts, described))
    else:
        put_lines(_lines(task, spec, facts, described))
    return exits.FOUND


def _described(task: TaskSpec) -> TaskDescription:
    configure_logs()
    return anyio.run(_describe, task)


async def _describe(task: TaskSpec) -> TaskDescription:
    with tempfile.TemporaryDirectory(prefix="ksearch-tasks-") as folder:
        evaluator = LocalEvaluator(Path(folder), slots=1)
        try:
            return await evaluator.describe_task(task, _SHAPES_OF if task.calling == "module" else "python")
        finally:
            await evaluator.aclose()


def _wrapped(text: str) -> list[str]:
    width = terminal_width()
    return [text] if width is None else textwrap.wrap(text, max(20, width - 4), break_on_hyphens=False)


def _shape_lines(facts: ProblemFacts) -> Iterator[str]:
    if facts.inputs:
        yield f"{'inputs':<10} {', '.join(facts.inputs)}"
    for size, extents in facts.sizes.items():
        yield f"{size:<10} {', '.join(f'{name} {extent}' for name, extent in extents.items())}"


def _lines(asked: str, task: TaskSpec, facts: ProblemFacts, described: TaskDescription | None) -> Iterator[str]:
    yield f"{'task':<10} {task.name}"
    if facts.summary:
        yield f"{'about':<10} {facts.summary}"
    yield from _shape_lines(facts)
    if described is not None:
        yield ""
        rows = [[tensor.name, tensor.role, _shape(tensor), tensor.dtype] for tensor in described.tensors]
        yield from table_lines(_COLUMNS, rows, width=terminal_width())
        together = f"{described.bytes_moved / 2**20:,.1f} MiB"
        yield f"together {together}, which any implementation that needs all of it must move at least once"
    yield ""
    yield task.text.strip()
    yield ""
    yield f"{'search':<10} ksearch run {quote(asked)}"
    if is_bundled(asked) and facts.sizes and ":" not in asked:
        others = [f"{asked}:{size}" for size in sizes_of(asked)[1:]]
        yield f"{'others':<10} {', '.join(others)}"


def _shape(tensor: TensorSpec) -> str:
    return f"({', '.join(map(str, tensor.shape))})"


def _as_object(task: TaskSpec, facts: ProblemFacts, described: TaskDescription | None) -> dict[str, object]:
    fields: dict[str, object] = msgspec.structs.asdict(facts)
    known = (
        {"tensors": described.tensors, "bytes_moved": described.bytes_moved, "prompt": described.prompt}
        if described
        else {}
    )
    return fields | {"task_id": task.task_id, "source": task.source, "text": task.text} | known
