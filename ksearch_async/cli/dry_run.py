"""`run --dry-run`: checks all that `run` checks before it asks a model, and says what the search would do and cost."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import msgspec

from ksearch_async.cli import exits
from ksearch_async.cli.waiting import explained
from ksearch_async.errors import refusal
from ksearch_async.evaluation.tasks import check_accepted, check_fitness, marks_of
from ksearch_async.fleet.access import EMBEDDED
from ksearch_async.fleet.nats_runs import roles_here
from ksearch_async.fleet.workers import (
    check_model,
    check_threads_here,
    find_target,
    initial_program,
    open_workers,
    read_task,
)
from ksearch_async.follow.logs import configure_logs
from ksearch_async.runs.estimate import Earlier, Estimate, Forecast, earlier_run, estimate, forecast
from ksearch_async.runs.folder import RunFolder, check_free
from ksearch_async.runs.resume import check_local
from ksearch_async.runs.warm_start import read_heritage, read_solution
from ksearch_async.settings.models import lineup_of, model_words, writer_dialect
from ksearch_async.settings.resolve import Resolved
from ksearch_async.settings.run_config import flatten
from ksearch_async.views.plain import wrapped_lines
from ksearch_async.views.terminal import note, put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, duration, table_lines
from messages.events import RunStarted
from messages.models import Lineup

_COLUMNS = (Column("setting"), Column("value"), Column("from"))


def rehearse(resolved: Resolved, *, run_id: str | None, as_json: bool) -> int:
    """Check everything that `ksearch run` checks before it asks a model, and report what it would do.

    Args:
        resolved: the configuration, with the origin of each value.
        run_id: the run's id; null: derived from task and time.
        as_json: print one JSON object.
    """
    configure_logs()
    _check_runs_dir(Path(resolved.config.runs_dir).absolute(), run_id)

    async def opened() -> RunStarted:
        async with explained(_opening_lines(resolved)) as started:
            return started

    started = anyio.run(opened)
    told = forecast(started)
    before = earlier_run(Path(resolved.config.runs_dir), started.task, started.target)
    likely = estimate(resolved.config, told, started.lineup, before)
    for mark in marks_of(started.description):
        note(f"warning: {mark}")
    if as_json:
        put_json({**_as_object(resolved, started, told, before), "lineup": started.lineup, "estimate": likely})
    else:
        put_lines([*wrapped_lines(_lines(resolved, started, told, before, likely)), "", *_table(resolved), ""])
        note("dry run: nothing was started, no model was asked")
    return exits.FOUND


@asynccontextmanager
async def _opening_lines(resolved: Resolved) -> AsyncIterator[RunStarted]:
    config = resolved.config
    check_accepted(config.task)
    if config.nats is None:
        check_local(config)
    task, language = read_task(config), config.candidate_language
    check_model(task, config.candidate_language, writer_dialect(config.model, os.environ))
    if config.nats is None:
        check_threads_here(task)
    lineup = lineup_of(config, os.environ, writes_here="coder" in roles_here(config))
    target = await find_target(task, language, config.workers.device)
    with tempfile.TemporaryDirectory(prefix="ksearch-dry-run-") as folder:
        async with open_workers(task, language, Path(folder), config.workers) as workers:
            description = await workers.describe()
            check_fitness(description, allow_trivial=config.allow_trivial)
    solution, heritage = read_solution(config), read_heritage(config, task, target)
    yield RunStarted(
        run_id="dry-run",
        task=task,
        description=description,
        target=target,
        settings=config.search,
        seed=config.seed,
        initial=initial_program(task),
        lineup=lineup,
        solution=solution,
        heritage=heritage,
    )


def _check_runs_dir(runs_dir: Path, run_id: str | None) -> None:
    """Accept a folder that a run could be made in. Makes none."""
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


def _lines(
    resolved: Resolved, started: RunStarted, told: Forecast, before: Earlier | None, likely: Estimate
) -> Iterator[str]:
    config, description = resolved.config, started.description
    shapes = [f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in description.tensors]
    yield f"task       {started.task.name} ({description.language})"
    if shapes:
        yield f"tensors    {'; '.join(shapes)}; {description.bytes_moved / 2**20:,.1f} MiB"
    march = f", -march={started.target.march}" if started.target.march else ""
    if config.nats in (None, EMBEDDED):
        yield f"device     {started.target.device}{march}"
    else:
        yield f"device     that of the evaluators at {config.nats}; this machine is {started.target.device}{march}"
    yield f"model      {model_words(config.model, os.environ)}"
    few, many = told.planner_calls
    planning = f"{few} to about {many}" if few != many else str(few)
    yield f"calls      {told.coder_calls} or more to write, {planning} to plan"
    yield f"           {started.settings.max_idle_attempts} in a row that bring nothing to evaluate end the search"
    more = f", {told.planner_prompt_tokens:,} to plan" if told.planner_prompt_tokens else ""
    tokens = f"about {told.coder_prompt_tokens:,} tokens to write{more} at first"
    yield f"prompts    {tokens}; they grow with code and logs"
    yield from price_lines(started.lineup)
    yield from _earlier_lines(before)
    yield from estimate_lines(likely)


def _table(resolved: Resolved) -> Iterator[str]:
    rows = [
        [path, _told(value), resolved.origins[path]] for path, value in flatten(msgspec.to_builtins(resolved.config))
    ]
    yield from table_lines(_COLUMNS, rows, width=terminal_width())


def _told(value: object) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case dict():
            set_to = {key: each for key, each in value.items() if each is not None and key != "name"}
            return " ".join([str(value.get("name") or "?"), *(f"{key}={_told(each)}" for key, each in set_to.items())])
        case list() | tuple():
            return "; ".join(map(_told, value)) or "none"
        case _:
            return str(value)


def _earlier_lines(before: Earlier | None) -> Iterator[str]:
    if before is None:
        return
    usage = before.usage
    who = before.model or "built-in rules"
    took = f"{before.rounds} rounds in {duration(before.elapsed_s)} on {before.branches} branches"
    yield f"earlier    {before.run}: {took}, {usage.calls} calls, {usage.tokens:,} tokens ({who})"


def price_lines(lineup: Lineup) -> Iterator[str]:
    """Say what each model charges."""
    for role, offer in (("planner", lineup.planner), *(("coder", each) for each in lineup.coders)):
        price = offer.price
        if price is None:
            yield f"price      {role} {offer.name}: not known, tokens only"
        elif price.input_usd or price.output_usd:
            said = f"${price.input_usd:g} prompt, ${price.cached_usd:g} cached, ${price.output_usd:g} completion"
            when = ", ".join(part for part in (price.dated, price.source) if part)
            yield f"price      {role} {offer.name}: {said} per million tokens{f' ({when})' if when else ''}"


def estimate_lines(likely: Estimate) -> Iterator[str]:
    """Say what a run is likely to take."""
    calls, tokens, (soonest_s, latest_s) = likely.calls, likely.tokens, likely.time_s
    yield f"estimate   {calls[0]:,} to {calls[1]:,} calls, {tokens[0]:,} to {tokens[1]:,} tokens"
    if likely.cost_usd is None:
        yield "           money: not known, no price for each model"
    elif likely.cost_usd[1]:
        yield f"           ${likely.cost_usd[0]:,.2f} to ${likely.cost_usd[1]:,.2f}"
    yield f"           {duration(soonest_s)} to {duration(latest_s)}"
    yield f"           rests on {likely.rests_on}"


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
