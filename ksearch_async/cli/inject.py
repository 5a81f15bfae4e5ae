"""`ksearch inject`: your own kernel becomes a candidate of a run."""

from __future__ import annotations

from pathlib import Path

import anyio

from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.reach import ANYWHERE, Reach
from ksearch_async.cli.steer import give_order
from ksearch_async.errors import refusal
from ksearch_async.evaluation.sources import read_given
from ksearch_async.follow.logs import configure_logs
from ksearch_async.runs.orders import begun
from ksearch_async.runs.run import Run
from messages.base import ROOT
from messages.steering import Inject
from messages.tasks import Candidate


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
    """Add your own kernel to a run's tree: it is built, evaluated and attached as any other, and is a round.

    Args:
        run: A run's id, its folder, or `latest`.
        file: A source file, a run's `best` folder, or a folder of its `candidates`.
        node: Under which node it hangs.
        title: What it is called in the tree. Without it: by the file's name.
        description: What it does, for the models that go on from it.
        reach: Where the run is looked for.
        as_json: Print one JSON object.
    """

    async def give() -> int:
        async with reach.line(run) as line:
            chronicle = await begun(line)
            candidate = _read(chronicle, file)
            named = title or f"Your own kernel, {file.name}"
            order = Inject(candidate=candidate, node_id=node, title=named, description=description)
            return await give_order(line, chronicle, order, as_json=as_json)

    configure_logs()
    return anyio.run(give)


def _read(chronicle: Run, file: Path) -> Candidate:
    """Return the candidate of a file, in the run's language.

    Raises:
        ConfigError: it cannot be read, or is of another language.
    """
    if chronicle.started is None:
        raise refusal("the run has not begun")
    described = chronicle.started.description
    return read_given(file, described.language, is_program=not described.entry_point)
