"""`ksearch pin`, `boost`, `forbid` and `release`; and how any order of a person's is given and answered."""

from __future__ import annotations

import anyio

from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.core.steering import carry_out
from actors.planner.core.step import Step
from ksearch_async.chronicle import Chronicle, standing_of
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import note, put, put_json
from ksearch_async.cli.reach import ANYWHERE, Reach
from ksearch_async.events import public_form
from ksearch_async.lines import Line
from ksearch_async.logs import configure_logs
from ksearch_async.refusals import refusal
from ksearch_async.session import GOES_ON
from ksearch_async.steering_words import steering_words
from messages.facts import Fact
from messages.steering import Boost, Forbid, Pin, Release, Steering, SteeringRefused, SteeringRequested

_PATIENCE_S = 20.0
"""As long as a standby may need to take over."""


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

    async def give() -> int:
        async with reach.line(run) as line:
            return await give_order(line, await begun(line), steering, as_json=as_json)

    configure_logs()
    return anyio.run(give)


async def begun(line: Line) -> Chronicle:
    """Return the run that a line leads to.

    Raises:
        ConfigError: it ended before it began.
    """
    chronicle = await line.read()
    if chronicle.started is None:
        raise refusal(f"run {line.run_id!r} ended before it began", "start it again under another name")
    return chronicle


async def give_order(line: Line, chronicle: Chronicle, steering: Steering, *, as_json: bool) -> int:
    """Give an order, unless it is known to be refused, and say what came of it.

    Raises:
        ConfigError: it cannot be carried out.
    """
    rehearsed = Step(chronicle.outlook)
    carry_out(rehearsed, steering)
    _check(tuple(rehearsed.facts))
    standing = standing_of(chronicle)
    is_led = bool(await line.leader()) and standing != "finished"
    patience_s = _PATIENCE_S if is_led or line.is_local else 0.0
    decided = await line.ask(SteeringRequested(order=steering), patience_s=patience_s)
    facts = tuple(rehearsed.facts) if decided is None else decided
    _check(facts)
    if decided is None:
        _note_recorded(line, chronicle)
    if as_json:
        told = [public_form(fact) for fact in facts if steering_words(fact, rehearsed.state)]
        put_json({"run": line.run_id, "state": standing, "taken": decided is not None, "facts": told})
        return exits.FOUND
    for words in _words(facts, chronicle.outlook):
        put(words)
    return exits.FOUND


def _words(facts: tuple[Fact, ...], state: SearchState) -> list[str]:
    said = []
    for fact in facts:
        state = evolve(state, fact)
        said.append(steering_words(fact, state))
    return [words for words in said if words]


def _check(facts: tuple[Fact, ...]) -> None:
    for fact in facts:
        if isinstance(fact, SteeringRefused):
            is_unknown = fact.reason.endswith("does not exist")
            raise refusal(fact.reason, "ksearch tree RUN shows the nodes") if is_unknown else refusal(fact.reason)


def _note_recorded(line: Line, chronicle: Chronicle) -> None:
    note(f"run {line.run_id} {rest_words(chronicle)}: this is recorded, and takes effect when it goes on")
    note(f"hint: {resume_words(line.run_id, chronicle)}")


def rest_words(chronicle: Chronicle) -> str:
    """Say how a run stands that nobody works on."""
    if chronicle.finished is None:
        return "goes on nowhere"
    return "is over" if is_over(chronicle) else "is stopped"


def resume_words(run_id: str, chronicle: Chronicle) -> str:
    """Say with what command a run that nobody works on goes on."""
    larger = " --max-rounds N goes on, with a larger budget" if is_over(chronicle) else " goes on with it"
    return f"ksearch resume {run_id}{larger}"


def is_over(chronicle: Chronicle) -> bool:
    """Say whether a run has come to its end, and not only to a stop."""
    finished = chronicle.finished
    return finished is not None and finished.stopped_by not in GOES_ON
