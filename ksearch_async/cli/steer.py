"""`ksearch stop`, `pause` and `continue`: ask whoever leads a run for something."""

from __future__ import annotations

from typing import Literal, TypeAlias

import anyio

from ksearch_async.chronicle import Standing, standing_of
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.orders import rest_words, resume_words
from ksearch_async.cli.output import note, put, put_json
from ksearch_async.cli.reach import ANYWHERE, Reach
from ksearch_async.lines import Line
from ksearch_async.logs import configure_logs
from ksearch_async.mailbox import Order
from ksearch_async.refusals import refusal
from messages.events import ContinueRequested, PauseRequested, StopRequested

_PATIENCE_S = 20.0
"""How long the planner may take; a standby needs as long as a lease lasts to take over."""

Verb: TypeAlias = Literal["stop", "pause", "continue"]
_WORDS: dict[Verb, str] = {
    "stop": "stopping: evaluations in flight are finished first",
    "pause": "paused: what is in flight is finished, nothing new begins",
    "continue": "goes on",
}
_ALREADY: dict[tuple[Verb, Standing], str] = {
    ("stop", "stopping"): "is stopping already",
    ("stop", "finished"): "is over already",
    ("pause", "paused"): "is paused already",
    ("continue", "running"): "is not paused",
}
_RESULTS: dict[Verb, Standing] = {"stop": "stopping", "pause": "paused", "continue": "running"}


def stop_command(
    run: str = "",
    /,
    *,
    reason: str = "",
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Have a run stop: evaluations in flight are finished, nothing new begins.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if only one is there.
        reason: Why, for who reads the run.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    order = StopRequested(reason=reason or "ksearch stop")
    return _steer("stop", order, run, reach, as_json=as_json)


def pause_command(
    run: str = "",
    /,
    *,
    reason: str = "",
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Have a run rest: what is in flight is finished and counted, nothing new begins.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if only one is there.
        reason: Why, for who reads the run.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    return _steer("pause", PauseRequested(reason=reason), run, reach, as_json=as_json)


def continue_command(
    run: str = "",
    /,
    *,
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Have a run that was paused go on.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if only one is there.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    return _steer("continue", ContinueRequested(), run, reach, as_json=as_json)


def _steer(
    verb: Verb,
    order: Order,
    run: str,
    reach: Reach,
    *,
    as_json: bool,
) -> int:
    async def ask() -> int:
        async with reach.line(run) as line:
            return await _ask(line, verb, order, as_json=as_json)

    configure_logs()
    return anyio.run(ask)


async def _ask(line: Line, verb: Verb, order: Order, *, as_json: bool) -> int:
    run_id, chronicle = line.run_id, await line.read()
    if chronicle.started is None:
        raise refusal(f"run {run_id!r} ended before it began", "start it again under another name")
    standing = standing_of(chronicle)
    if (verb, standing) in _ALREADY:
        note(f"run {run_id} {_ALREADY[verb, standing]}")
        _said(run_id, standing, taken=False, as_json=as_json)
        if standing == "stopping" and not await line.leader():
            return _unled(line)
        return exits.FOUND
    if standing in ("stopping", "finished"):
        words = rest_words(chronicle) if standing == "finished" else "is stopping"
        raise refusal(f"run {run_id!r} {words}: it cannot {verb}", resume_words(run_id, chronicle))
    if line.is_local and not await line.leader():
        raise refusal(f"nobody works on run {run_id!r}: it was killed", f"ksearch resume {run_id} goes on with it")
    if await line.ask(order, patience_s=_PATIENCE_S) is not None:
        if not as_json:
            put(f"run {run_id} {_WORDS[verb]}")
        return _said(run_id, _RESULTS[verb], taken=True, as_json=as_json)
    leader = await line.leader()
    who = f"{leader} leads it and does not answer" if leader else "nobody leads it"
    note(f"error: run {run_id} was asked to {verb}, and {who}: whoever leads it next does it")
    _said(run_id, standing, taken=False, as_json=as_json)
    return exits.INFRASTRUCTURE


def _unled(line: Line) -> int:
    note(f"error: nobody leads run {line.run_id}: whoever leads it next ends it")
    planner = "" if line.is_local else f"ksearch planner {line.run_id} does, or "
    note(f"hint: {planner}ksearch resume {line.run_id}{' does' if line.is_local else ''}")
    return exits.INFRASTRUCTURE


def _said(run_id: str, standing: Standing, *, taken: bool, as_json: bool) -> int:
    if as_json:
        put_json({"run": run_id, "state": standing, "taken": taken})
    return exits.FOUND
