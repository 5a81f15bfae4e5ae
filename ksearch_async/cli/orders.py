"""`ksearch pin`, `boost`, `forbid` and `release`; and how any order of a person's is given and answered."""

from __future__ import annotations

import anyio

from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import note, put, put_json
from ksearch_async.cli.reach import ANYWHERE, Reach
from ksearch_async.events import public_form
from ksearch_async.lines import Line
from ksearch_async.logs import configure_logs
from ksearch_async.ordering import begun, give
from messages.steering import Boost, Forbid, Pin, Release, Steering


def pin_command(
    run: str,
    node: str,
    /,
    *,
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Have an action chosen next, once, whatever its score.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it. One that was pruned is open again.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    return order(Pin(node_id=node), run, reach, as_json=as_json)


def boost_command(
    run: str,
    node: str,
    /,
    *,
    by: float = 0.2,
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Add to an action's score, in place of what was added before.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it.
        by: What is added, -1 to 1; the model's V goes from 0 to 1.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    return order(Boost(node_id=node, by=by), run, reach, as_json=as_json)


def forbid_command(
    run: str,
    node: str,
    /,
    *,
    reason: str = "",
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Have an action, and all below it, never be chosen; branches at work there end after their attempt.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it.
        reason: Why; the planner's model is told.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    return order(Forbid(node_id=node, reason=reason), run, reach, as_json=as_json)


def release_command(
    run: str,
    node: str,
    /,
    *,
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Take back what was ordered for an action: pin, boost and ban.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """
    return order(Release(node_id=node), run, reach, as_json=as_json)


def order(
    steering: Steering,
    run: str,
    reach: Reach,
    *,
    as_json: bool,
) -> int:
    """Give an order to a run, say what came of it, and return the exit code.

    Raises:
        ConfigError: there is no such run, or the order cannot be carried out; says why.
        messages.errors.BusError: the run cannot be reached.
    """

    async def order_it() -> int:
        async with reach.line(run) as line:
            return await give_order(line, await begun(line), steering, as_json=as_json)

    configure_logs()
    return anyio.run(order_it)


async def give_order(line: Line, chronicle: Chronicle, steering: Steering, *, as_json: bool) -> int:
    """Give an order, unless it is known to be refused, and say what came of it.

    Raises:
        ConfigError: it cannot be carried out.
    """
    given = await give(line, chronicle, steering)
    for text in given.notes:
        note(text)
    if as_json:
        told = [public_form(fact) for fact in given.facts]
        put_json({"run": line.run_id, "state": given.standing, "taken": given.taken, "facts": told})
        return exits.FOUND
    for words in given.words:
        put(words)
    return exits.FOUND
