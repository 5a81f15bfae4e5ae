"""`ksearch run --dry-run`: what a run would be, without starting it. No model is asked, no folder is made."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from ksearch_async.cli import exits
from ksearch_async.cli.output import note, put, put_json, terminal_width
from ksearch_async.cli.session import explained
from ksearch_async.cli.tables import Column, table_lines
from ksearch_async.cli.views import wrapped_lines
from ksearch_async.config import Resolved, flatten
from ksearch_async.forecast import Earlier, Forecast, earlier_run, forecast
from ksearch_async.logs import configure_logs
from ksearch_async.models import dialect_of, model_words
from ksearch_async.narrate import duration
from ksearch_async.refusals import refusal
from ksearch_async.runs import RunFolder, check_free
from ksearch_async.workers import check_model, find_target, initial_program, open_workers, read_task
from messages.events import RunStarted

_COLUMNS = (Column("setting"), Column("value"), Column("from"))


def rehearse(resolved: Resolved, *, run_id: str | None, as_json: bool) -> int:
    """Check everything that `ksearch run` checks before it asks a model, and say what it would do.

    Args:
        resolved: the configuration, traced.
        run_id: what the run would be called; null: by task and time.
        as_json: print one JSON object.

    Raises:
        ConfigError: task, model settings, toolchain or folder cannot be used.
    """
    configure_logs()
    _check_runs_dir(Path(resolved.config.runs_dir).absolute(), run_id)
    started = anyio.run(_rehearsed, resolved)
    told = forecast(started)
    before = earlier_run(Path(resolved.config.runs_dir), started.task, started.target)
    if as_json:
        put_json(_as_object(resolved, started, told, before))
    else:
        put("\n".join([*wrapped_lines(_lines(resolved, started, told, before)), "", *_table(resolved), ""]))
        note("dry run: nothing was started, no model was asked")
    return exits.FOUND


async def _rehearsed(resolved: Resolved) -> RunStarted:
    async with explained(_opening(resolved)) as started:
        return started


@asynccontextmanager
async def _opening(resolved: Resolved) -> AsyncIterator[RunStarted]:
    """Run the reference once, as a run does, and yield the event that the run would begin with."""
    config = resolved.config
    task, language = read_task(config), config.candidate_language
    check_model(task, dialect_of(config.model, os.environ))
    target = await find_target(task, language)
    with tempfile.TemporaryDirectory(prefix="ksearch-dry-run-") as folder:
        async with open_workers(task, language, Path(folder), evaluators=1) as workers:
            description = await workers.describe()
    yield RunStarted(
        run_id="dry-run",
        task=task,
        description=description,
        target=target,
        settings=config.search,
        seed=config.seed,
        initial=initial_program(task),
    )


def _check_runs_dir(runs_dir: Path, run_id: str | None) -> None:
    """Accept a folder that a run could be made in. Makes none.

    Raises:
        ConfigError: it cannot be written there, or has a run of that name.
    """
    why = ""
    try:
        existing = next(folder for folder in (runs_dir, *runs_dir.parents) if folder.exists())
        usable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
        if run_id is not None:
            check_free(RunFolder(runs_dir / run_id))
    except OSError as error:
        usable, why = False, f": {error.strerror}"
    if not usable:
        raise refusal(f"cannot write to {str(runs_dir)!r}{why}", "choose another folder with --runs-dir")


def _lines(resolved: Resolved, started: RunStarted, told: Forecast, before: Earlier | None) -> Iterator[str]:
    config, description = resolved.config, started.description
    shapes = [f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in description.tensors]
    yield f"task       {started.task.name} ({description.language})"
    if shapes:
        yield f"tensors    {'; '.join(shapes)}; {description.bytes_moved / 2**20:,.1f} MiB"
    march = f", -march={started.target.march}" if started.target.march else ""
    yield f"device     {started.target.device}{march}"
    yield f"model      {model_words(config.model, os.environ)}"
    few, many = told.planner_calls
    planning = f"{few} to about {many}" if few != many else str(few)
    yield f"calls      {told.coder_calls} or more to write, {planning} to plan"
    yield f"prompts    {_prompts(told)}"
    yield from _earlier_lines(before, config.search.budget.max_rounds)


def _table(resolved: Resolved) -> Iterator[str]:
    rows = [
        [path, "none" if value is None else str(value), resolved.origins[path]]
        for path, value in flatten(msgspec.to_builtins(resolved.config))
    ]
    yield from table_lines(_COLUMNS, rows, width=terminal_width())


def _prompts(told: Forecast) -> str:
    planning = f", {told.planner_prompt_tokens:,} to plan" if told.planner_prompt_tokens else ""
    return f"about {told.coder_prompt_tokens:,} tokens to write{planning} at first; they grow with code and logs"


def _earlier_lines(before: Earlier | None, rounds: int) -> Iterator[str]:
    if before is None:
        yield "time       not known: no earlier run of this task on this machine"
        return
    usage = before.usage
    who = before.model or "built-in rules"
    took = f"{before.rounds} rounds in {duration(before.elapsed_s)} on {before.branches} branches"
    yield f"earlier    {before.run}: {took}, {usage.calls} calls, {usage.tokens:,} tokens ({who})"
    yield f"time       about {duration(before.round_s * rounds)} at that pace"


def _as_object(resolved: Resolved, started: RunStarted, told: Forecast, before: Earlier | None) -> dict[str, object]:
    return {
        "config": resolved.config,
        "origins": resolved.origins,
        "task": {
            "name": started.task.name,
            "task_id": started.task.task_id,
            "tensors": started.description.tensors,
            "bytes_moved": started.description.bytes_moved,
        },
        "target": started.target,
        "model": model_words(resolved.config.model, os.environ),
        "forecast": told,
        "earlier": before,
    }
