"""A run that goes on only as far as it is let: a program, so that servers and browsers see what another process does.

`python -m tests.browser.live_run FOLDER ROUNDS` leads a search of that many rounds in a new folder. It reads numbers,
one a line, from its standard input: how many model calls it may have made by now. At the input's end it may make any.
The planner proposes chains of four actions with hostile titles, every third candidate is wrong, the others get faster.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from actors.llm.base import Answer, Request, ScriptedModel
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.resume import Session, Tools, lead_session
from ksearch_async.runs.run import Run
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.events import RunStarted
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate
from messages.verdicts import Interval, Measured, Verdict, Wrong
from tests.ksearch_async.stories import story

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \x1b[31mred\x1b[0m \u202eright to left"
"""In titles and reasons of the runs here: markup, a terminal's colours, a mark that turns text round."""


class GatedModel:
    """A scripted model that answers no more questions than `allowed`."""

    def __init__(self) -> None:
        self._model = ScriptedModel(_answered)
        self._asked = 0
        self._allowed: float = 0
        self._changed = anyio.Event()

    async def complete(self, request: Request) -> Answer:
        """Answer a question, once it may be."""
        self._asked += 1
        number = self._asked
        while number > self._allowed:
            await self._changed.wait()
        return await self._model.complete(request)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""

    async def read_allowances(self) -> None:
        """Take what standard input says until it ends."""
        while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            self._allow(int(line))
        self._allow(float("inf"))

    def _allow(self, calls: float) -> None:
        self._allowed = calls
        self._changed.set()
        self._changed = anyio.Event()


class Verdicts:
    """Faster and faster, and every third one wrong."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, _candidate: Candidate) -> Verdict:
        """Return the next verdict."""
        self._count += 1
        if self._count % 3 == 0:
            return Wrong(reason=f"17 of 64 elements are wrong {HOSTILE}")
        speedup = 0.5 + self._count / 10
        return Measured(
            timed=True,
            latency_us=100.0 / speedup,
            reference_latency_us=100.0,
            speedup_vs_reference=speedup,
            speedup_interval=Interval(low=speedup - 0.05, high=speedup + 0.05),
            pairs=20,
        )


def _answered(request: Request) -> str:
    if request.role != "planner":
        return f'```cpp\nextern "C" int ksearch_run() {{ return 0; }} // {request.request_id} {HOSTILE}\n```'
    action = {"op": "insert", "description": HOSTILE, "difficulty": 1, "priority": 0.5}
    edits = [
        {
            **action,
            "title": f"step {number} of {request.request_id} {HOSTILE}",
            "key": f"k{number}",
            "parent": f"k{number - 1}" if number else "n0",
        }
        for number in range(4)
    ]
    return json.dumps({"edits": edits})


async def _lead(folder: RunFolder, rounds: int) -> None:
    settings = SearchSettings(branches=4, stagnation_window=2, budget=Budget(max_rounds=rounds))
    opening = story()[0].body
    assert isinstance(opening, RunStarted)
    started = msgspec.structs.replace(opening, run_id=folder.run_id, settings=settings)
    folder.path.mkdir(parents=True)
    config = RunConfig(task="relu.py", search=settings)
    save_config(config, folder.config)
    session = Session(folder=folder, config=config, started=started, chronicle=Run(), opening=started)
    model = GatedModel()
    tools = Tools(model=model, builder=SimulatedBuilder(), evaluator=SimulatedEvaluator(Verdicts().next))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(model.read_allowances)
        await lead_session(session, tools, tell=session.chronicle.fold)
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(_lead, RunFolder(Path(sys.argv[1])), int(sys.argv[2]))
