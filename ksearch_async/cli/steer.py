"""Orders to a run: `ksearch stop`, `pause`, `continue`, `pin`, `boost`, `forbid`, `release`, `tell` and `inject`."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

from actors.planner.core.state import Instruction
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.evaluation.candidates import read_given
from ksearch_async.follow.logs import configure_logs
from ksearch_async.runs.orders import Line, Verb, begun, give, open_line, steer
from ksearch_async.runs.run import Order, Run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.events import public_form
from ksearch_async.views.lines import AUDIENCES
from ksearch_async.views.terminal import note, put, put_json
from messages.base import ROOT
from messages.events import ContinueRequested, PauseRequested, StopRequested
from messages.steering import Audience, Boost, Forbid, Forget, Inject, Instruct, Pin, Release, Steering


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where a run is looked for."""

    nats: str | None = None
    """Address of the NATS server. [default: the one in the run's folder, else KSEARCH_NATS]"""
    credentials: Path | None = None
    """File with the user's name and password, or an nkey's seed. [env: KSEARCH_NATS_CREDENTIALS]"""
    runs_dir: Path | None = None
    """Folder of the run folders. [env: KSEARCH_RUNS_DIR] [default: runs]"""

    def line(self, run: str) -> AbstractAsyncContextManager[Line]:
        """Return the way to a run, by its id, its folder, or `latest`; open while it is entered."""
        folder = runs_dir_or_default(self.runs_dir)
        return open_line(run, self.nats, folder, os.environ, credentials=self.credentials)


ANYWHERE = Reach()


def pin_command(
    run: str,
    node: str,
    /,
    *,
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Choose an action next, once, regardless of its score.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it. A pruned action is opened again.
        reach: Where to find the run.
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
    """Add to an action's score. Replaces what was added before.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it.
        by: Number to add, -1 to 1; the model's V is between 0 and 1.
        reach: Where to find the run.
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
    """Exclude an action, and all below it, from the search; branches at work there end after their current attempt.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it.
        reason: The reason, for the planner's model.
        reach: Where to find the run.
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
    """Take back the orders for an action: pin, boost and ban.

    Args:
        run: A run's id, its folder, or `latest`.
        node: The action's id, as `ksearch tree` shows it.
        reach: Where to find the run.
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
    """Give an order to a run, say what came of it, and return the exit code."""

    async def order_it() -> int:
        async with reach.line(run) as line:
            return await give_order(line, await begun(line), steering, as_json=as_json)

    configure_logs()
    return anyio.run(order_it)


async def give_order(line: Line, chronicle: Run, steering: Steering, *, as_json: bool) -> int:
    """Give an order, unless its refusal is known already, and print the outcome."""
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


def stop_command(
    run: str = "",
    /,
    *,
    reason: str = "",
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Stop a run: evaluations in flight are finished, and nothing new begins.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if there is only one.
        reason: The reason, for readers of the run.
        reach: Where to find the run.
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
    """Pause a run: jobs in flight are finished and counted, no new ones begin.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if there is only one.
        reason: The reason, for readers of the run.
        reach: Where to find the run.
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
    """Continue a paused run.

    Args:
        run: A run's id, its folder, or `latest`; may be left out if there is only one.
        reach: Where to find the run.
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


def tell_command(
    run: str,
    text: str | None = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    to: Audience = "both",
    list_: Annotated[bool, Parameter(name="--list", negative="", show_default=False)] = False,
    forget: int | None = None,
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Tell a run's models something: it is part of every later prompt until it is forgotten.

    Args:
        run: A run's id, its folder, or `latest`.
        text: The instruction.
        file: A file with the instruction; `-` for the standard input.
        to: Model that reads it: the planner's, the coder's, or both.
        list_: List the instructions in force, with their numbers.
        forget: Take back the instruction with this number.
        reach: Where to find the run.
        as_json: Print one JSON object.
    """
    if (text is not None) + (file is not None) + list_ + (forget is not None) != 1:
        usage = 'ksearch tell RUN "Keep to one kernel launch."'
        raise refusal("one of TEXT, --file, --list and --forget is needed, and no more", usage)
    if list_:
        return _list(run, reach, as_json=as_json)
    if forget is not None:
        return order(Forget(number=forget), run, reach, as_json=as_json)
    said = text if file is None else _read(file)
    return order(Instruct(text=(said or "").encode("utf-8", "replace").decode(), to=to), run, reach, as_json=as_json)


def _read(file: Path) -> str:
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise refusal(f"cannot read {str(file)!r}: {error.strerror}") from error
    return content.decode("utf-8", "replace")


def _list(run: str, reach: Reach, *, as_json: bool) -> int:
    async def read() -> tuple[str, tuple[Instruction, ...]]:
        async with reach.line(run) as line:
            return line.run_id, (await begun(line)).outlook.instructions

    configure_logs()
    run_id, instructions = anyio.run(read)
    if as_json:
        put_json({"run": run_id, "instructions": instructions})
        return exits.FOUND
    for said in instructions:
        first, *more = said.text.split("\n")
        put(f"{said.number:>3}  to {AUDIENCES[said.to]}: {first}")
        for line in more:
            put(f"     {line}")
    if not instructions:
        note(f"run {run_id} has no instructions")
    return exits.FOUND


def inject_command(
    run: str,
    file: Path,
    /,
    *,
    node: str = ROOT,
    title: str = "",
    description: str = "",
    reach: Reach = ANYWHERE,
    as_json: JsonFlag = False,
) -> int:
    """Add your own kernel to a run's tree. It is built, evaluated and attached like any other, and counts as a round.

    Args:
        run: A run's id, its folder, or `latest`.
        file: A source file, a run's `best` folder, or a folder of its `candidates`.
        node: Node below which it is attached.
        title: Title of its node. [default: the file's name]
        description: What it does, for the models that build on it.
        reach: Where to find the run.
        as_json: Print one JSON object.
    """

    async def give() -> int:
        async with reach.line(run) as line:
            chronicle = await begun(line)
            if chronicle.started is None:
                raise refusal("the run has not begun")
            described = chronicle.started.description
            candidate = read_given(file, described.language, is_program=not described.entry_point)
            named = title or f"Your own kernel, {file.name}"
            order = Inject(candidate=candidate, node_id=node, title=named, description=description)
            return await give_order(line, chronicle, order, as_json=as_json)

    configure_logs()
    return anyio.run(give)
