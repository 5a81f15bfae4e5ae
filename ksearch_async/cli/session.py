"""`run` and `resume`: rehearses or leads a session, shows it, and maps its end to an exit code."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus

from actors.llm.replay import NOT_RECORDED
from ksearch_async.cli import exits
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
    slots_of,
)
from ksearch_async.follow.beside import accompanied
from ksearch_async.follow.logs import configure_logs
from ksearch_async.follow.tracing import tracing
from ksearch_async.runs.background import Departure, Detached, depart
from ksearch_async.runs.estimate import Earlier, Estimate, Forecast, earlier_run, estimate, forecast
from ksearch_async.runs.folder import RunFolder, check_free, run_id_of
from ksearch_async.runs.resume import Lead, Opening, Session, Start, StopSwitch, check_local, open_session
from ksearch_async.runs.run import Run
from ksearch_async.runs.warm_start import read_heritage, read_solution
from ksearch_async.settings.models import lineup_of, model_words, rules_answer_misses, writer_dialect
from ksearch_async.settings.resolve import Resolved
from ksearch_async.settings.run_config import RunConfig, files_gone, flatten, runs_dir_or_default
from ksearch_async.views.live import LiveView, can_be_live
from ksearch_async.views.plain import JsonView, PlainView, View, wrapped_lines
from ksearch_async.views.terminal import as_argument, note, put, put_json, put_lines, shown_path, terminal_width
from ksearch_async.views.text import Column, duration, table_lines
from messages.codec import Record
from messages.events import RunStarted
from messages.models import Lineup


async def heed_signals(
    stop: StopSwitch,
    now: anyio.CancelScope,
    note: Callable[[str], None],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Ask for a stop at the first signal and cancel at the second; after that, signals do what they always do.

    Args:
        stop: asked at the first signal.
        now: cancelled at the second.
        note: called with a line for the person at the terminal.
        task_status: told when signals are heeded.
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if stop.was_asked:
                note("stopping now")
                now.cancel()
                return
            note("stopping when the evaluations in flight are done; again stops now")
            stop.ask(signal.Signals(received).name)


async def leave_at_signal(now: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Cancel at the first signal: what is shown goes on without us."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            now.cancel()
            return


T = TypeVar("T")
ViewKind: TypeAlias = Literal["auto", "live", "plain"]
ShownKind: TypeAlias = Literal["live", "plain", "json"]

_PATIENCE_S = 2.0
"""A start that takes longer is explained."""
_AGAIN_S = 10.0


def conduct(opens: Callable[[Start], Opening], *, view: ViewKind, as_json: bool, detach: bool = False) -> int:
    """Open and lead a session, and return the exit code that it earned.

    Args:
        opens: makes the opening; told by it what it is busy with.
        view: how it is shown.
        as_json: print events as JSON instead.
        detach: lead it in a process that needs no terminal, and return 0 once the run has begun.
    """
    if detach and view == "live":
        raise refusal("--view live and --detach cannot be given together", "ksearch watch RUN shows it live")
    departed = depart() if detach else None
    if isinstance(departed, Detached):
        _tell_detached(departed, as_json=as_json)
        return exits.FOUND
    if isinstance(departed, int):
        return departed
    kind = view_kind(view, as_json=as_json)
    with tracing(os.environ, role="planner"):
        return anyio.run(_conduct, opens, kind, departed)


def _tell_detached(detached: Detached, *, as_json: bool) -> None:
    if as_json:
        put_json({"kind": "detached", **msgspec.structs.asdict(detached)})
        return
    folder = Path(detached.path)
    run = detached.run if folder.parent == runs_dir_or_default(None).absolute() else as_argument(folder)
    put(f"run        {detached.run}, process {detached.pid}")
    put(f"output     {shown_path(Path(detached.output))}")
    put(f"watch it   ksearch watch {run}")
    put(f"stop it    ksearch stop {run}")


async def _conduct(opens: Callable[[Start], Opening], kind: ShownKind, departure: Departure | None) -> int:
    configure_logs()
    start = Start(note)
    async with explained(opens(start), start) as (session, lead):
        view = _view(session, kind)
        if not session.is_over:
            configure_logs(session.folder.log, say=view.note)
            _note_beginning(session, kind, view)
            gc.freeze()
            gc.enable()  # `main` disabled it for the start; a search may go on for days
            await _lead(session, lead, view, departure)
        else:
            note(f"run {session.folder.run_id} is over: nothing was started")
            larger = f"ksearch resume {as_argument(session.folder.path)} --max-rounds N"
            note(f"hint: it goes on with a larger budget: {larger}")
        if goes_on := not session.leads and session.chronicle.finished is None:
            note(f"run {session.folder.run_id} goes on without this view")
        view.finish(goes_on=goes_on)
        code = exit_code(session.chronicle)
        if has_missed(session.chronicle):
            note("hint: --replay-misses ask has a model asked what the recorded run was not: --model NAME")
        return code


@asynccontextmanager
async def explained(opening: AbstractAsyncContextManager[T], start: Start | None = None) -> AsyncIterator[T]:
    """Open what has the reference run, or waits for others; while that takes its time, say so on stderr."""
    async with anyio.create_task_group() as beside:
        waiting = anyio.CancelScope()
        beside.start_soon(_explain, waiting, start or Start(note))
        async with opening as opened:
            waiting.cancel()
            yield opened


async def _explain(waiting: anyio.CancelScope, start: Start) -> None:
    begun = anyio.current_time()
    with waiting:
        await anyio.sleep(_PATIENCE_S)
        note(f"{start.doing} ...")
        while True:
            await anyio.sleep(_AGAIN_S)
            note(f"still {start.doing}: {anyio.current_time() - begun:.0f} s; Ctrl-C gives up")


async def _lead(session: Session, lead: Lead, view: View, departure: Departure | None) -> None:
    stop, now = StopSwitch(), anyio.CancelScope()

    def tell(record: Record) -> None:
        if departure is not None:  # the run has begun: this is its first event
            departure.leave(session.folder)
        view.tell(record)

    if departure is not None and session.opening is None:
        departure.leave(session.folder)
    async with anyio.create_task_group() as beside:
        if session.leads:
            await beside.start(heed_signals, stop, now, view.note)
        else:
            await beside.start(leave_at_signal, now)
        await beside.start(view.show)
        with now:
            await accompanied(session, lead, say=view.note)(tell=tell, stop=stop)
        beside.cancel_scope.cancel()


def _note_beginning(session: Session, kind: ShownKind, view: View) -> None:
    if rules_answer_misses(session.config.model, os.environ):
        view.note(
            "hint: no model is named for what the recorded run was not asked: built-in rules answer; --model NAME"
        )
    if session.address and (kind == "json" or session.opening is not session.started):
        view.note(f"messages of run {session.started.run_id} go over {session.address}")
    for file in files_gone(session.config):
        view.note(f"warning: {shown_path(Path(file))!r} is not there: the run goes on with its own copy of the task")
    if session.opening is None:
        rounds = session.chronicle.state.rounds
        begins = "goes on" if session.leads else "is followed"
        view.note(f"run {session.started.run_id} {begins} after {rounds} rounds")
    else:
        for mark in marks_of(session.started.description):
            view.note(f"warning: {mark}")


def has_missed(chronicle: Run) -> bool:
    """Say whether a run ended because a recorded run was not asked what it asks."""
    finished = chronicle.finished
    return finished is not None and finished.stopped_by == "infrastructure" and NOT_RECORDED in finished.detail


def view_kind(view: ViewKind, *, as_json: bool) -> ShownKind:
    """Return how a run is shown here."""
    if as_json:
        if view != "auto":
            raise refusal(f"--view {view} and --json cannot be given together")
        return "json"
    if view != "plain" and can_be_live(sys.stdout):
        return "live"
    if view == "live":
        raise refusal("--view live needs a terminal of some size on stdout", "--view plain prints lines anywhere")
    return "plain"


def _view(session: Session, kind: ShownKind) -> View:
    if kind == "json":
        return JsonView(session.chronicle, session.folder)
    words = model_words(session.config.model, os.environ)
    plain = PlainView(session.chronicle, session.folder, session.config, words, address=session.address)
    if kind != "live":
        return plain
    slots = slots_of(session.config.workers) if session.config.nats is None else None
    return LiveView(plain, sys.stdout, leads=session.leads, slots=slots)


def exit_code(chronicle: Run) -> int:
    """Return what a run that was shown to its end, or to where it was left, earned."""
    finished = chronicle.finished
    if finished is None or finished.stopped_by == "interrupted":
        return exits.INTERRUPTED
    if finished.stopped_by == "infrastructure":
        note(f"error: the infrastructure failed: {finished.detail}")
        return exits.INFRASTRUCTURE
    best = chronicle.best("")
    return exits.FOUND if best is not None and best.faster else exits.NOT_FOUND


_COLUMNS = (Column("setting"), Column("value"), Column("from"))


def rehearse(resolved: Resolved, *, run_id: str | None, as_json: bool) -> int:
    """Check everything that `ksearch run` checks before it asks a model, and say what it would do.

    Args:
        resolved: the configuration, traced.
        run_id: what the run would be called; null: by task and time.
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


def start_run(
    resolved: Resolved,
    *,
    run_name: str | None,
    target_gpu: str | None,
    dry_run: bool,
    detach: bool,
    view: ViewKind,
    as_json: bool,
) -> int:
    """Start a run, or only say what it would be, and return the exit code."""
    config = resolved.config
    run_id = run_id_of(run_name) if run_name is not None else None
    if target_gpu is not None:
        _check_device(config, target_gpu)
    if dry_run:
        return rehearse(resolved, run_id=run_id, as_json=as_json)

    def opens(start: Start) -> Opening:
        return open_session(config, run_id=run_id, start=start)

    return conduct(opens, view=view, as_json=as_json, detach=detach)


def _check_device(config: RunConfig, wanted: str) -> None:
    device = anyio.run(find_target, read_task(config), config.candidate_language, config.workers.device).device
    if not all(part in device.lower() for part in wanted.lower().replace("-", " ").split()):
        raise refusal(
            f"--target-gpu {wanted}: this run is for {device}, the device that it is timed on",
            "leave --target-gpu out, or run on a machine that has it",
        )
