"""`ksearch stop`, `pause` and `continue`: ask whoever leads a run for something."""

from __future__ import annotations

import anyio

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import note, put, put_json
from ksearch_async.cli.reach import ANYWHERE, Reach
from ksearch_async.lines import Line
from ksearch_async.logs import configure_logs
from ksearch_async.mailbox import Order
from ksearch_async.ordering import Verb, steer
from messages.events import ContinueRequested, PauseRequested, StopRequested


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
    answered = await steer(line, verb, order)
    if answered.taken and not as_json:
        put(answered.said)
    elif not answered.taken and answered.said:
        note(answered.said)
    if answered.failure:
        note(f"error: {answered.failure}")
    if answered.hint:
        note(f"hint: {answered.hint}")
    if as_json:
        put_json({"run": line.run_id, "state": answered.standing, "taken": answered.taken})
    return exits.INFRASTRUCTURE if answered.failure else exits.FOUND
