"""Real journals in a moment: the planner and its actors, with scripted answers and simulated verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from actors.bus.journal import read_journal
from actors.llm.base import Request, ScriptedModel
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.resume import Session, Tools, lead_session
from ksearch_async.runs.run import Run
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.codec import Record
from messages.events import RunStarted
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate
from messages.verdicts import Interval, Measured, Verdict, Wrong
from tests.ksearch_async.stories import RUN_ID, story

BRANCHES, ROUNDS = 4, 40


async def real_journal(folder: Path) -> list[Record]:
    """Lead a search of `ROUNDS` rounds, in which every third candidate is wrong and others get faster and faster."""
    settings = SearchSettings(branches=BRANCHES, stagnation_window=2, budget=Budget(max_rounds=ROUNDS))
    opening = story()[0].body
    assert isinstance(opening, RunStarted)
    started = msgspec.structs.replace(opening, settings=settings)
    run = RunFolder(folder / RUN_ID)
    run.path.mkdir()
    config = RunConfig(task="relu.py", search=settings)
    save_config(config, run.config)
    session = Session(folder=run, config=config, started=started, chronicle=Run(), opening=started)
    tools = Tools(
        model=ScriptedModel(_answered), builder=SimulatedBuilder(), evaluator=SimulatedEvaluator(_Verdicts().next)
    )
    await lead_session(session, tools, tell=session.chronicle.fold)
    return list(read_journal(run.journal))


def _answered(request: Request) -> str:
    if request.role == "planner":
        action = {"op": "insert", "description": "", "difficulty": 1, "priority": 0.5}
        titles = [f"{request.request_id} 列 {number}" for number in range(4)]
        edits = [  # each hangs below the one before it
            {**action, "title": title, "key": f"k{number}", "parent": f"k{number - 1}" if number else "n0"}
            for number, title in enumerate(titles)
        ]
        return json.dumps({"edits": edits})
    return f'```cpp\nextern "C" int ksearch_run() {{ return 0; }} // {request.request_id}\n```'


class _Verdicts:
    def __init__(self) -> None:
        self._count = 0

    def next(self, _candidate: Candidate) -> Verdict:
        self._count += 1
        if self._count % 3 == 0:
            return Wrong(reason="17 of 64 elements are wrong")
        speedup = 0.5 + self._count / 10
        return Measured(
            timed=True,
            latency_us=100.0 / speedup,
            reference_latency_us=100.0,
            speedup_vs_reference=speedup,
            speedup_interval=Interval(low=speedup - 0.05, high=speedup + 0.05),
            pairs=20,
        )
