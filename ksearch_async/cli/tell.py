"""`ksearch tell`: instructions for the models of a run, which stand in every further prompt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

from actors.planner.core.state import Instruction
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.orders import order
from ksearch_async.cli.output import note, put, put_json
from ksearch_async.cli.reach import ANYWHERE, Reach
from ksearch_async.logs import configure_logs
from ksearch_async.ordering import begun
from ksearch_async.refusals import refusal
from ksearch_async.steering_words import AUDIENCES
from messages.steering import Audience, Forget, Instruct


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
    """Tell a run's models something: it stands in every further prompt until it is forgotten.

    Args:
        run: A run's id, its folder, or `latest`.
        text: The instruction.
        file: A file that holds it, `-` for the standard input.
        to: Who reads it: the model that plans, the one that writes, or both.
        list_: List the instructions that hold, with their numbers.
        forget: Take back the instruction of this number.
        reach: Where the run is looked for.
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
    return order(Instruct(text=_as_utf8(said or ""), to=to), run, reach, as_json=as_json)


def _read(file: Path) -> str:
    try:
        content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise refusal(f"cannot read {str(file)!r}: {error.strerror}") from error
    return content.decode("utf-8", "replace")


def _as_utf8(text: str) -> str:
    """Return what can be sent of an argument that was no UTF-8."""
    return text.encode("utf-8", "replace").decode()


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
