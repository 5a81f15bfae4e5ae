"""A process of its own that leads a run of one process, with scripted answers and verdicts: `leading.py FOLDER ROUNDS`.

Goes on with the run if the folder has one.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import msgspec

from actors.llm.base import ScriptedModel
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.runs.resume import Session, Tools, lead_session
from ksearch_async.runs.run import Run
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.codec import Record
from messages.events import RunResumed, RunStarted
from messages.settings import Budget, SearchSettings
from tests.ksearch_async.runs.test_launch import answered
from tests.ksearch_async.stories import FAST, story

LATENCY_S = 0.05


def session_of(folder: RunFolder, rounds: int) -> Session:
    budget = Budget(max_rounds=rounds)
    if folder.journal.exists():
        chronicle = read_run(folder)
        assert chronicle.started is not None
        config = RunConfig(task="relu.py", runs_dir=str(folder.path.parent), search=chronicle.started.settings)
        opening = RunResumed(run_id=chronicle.started.run_id, budget=budget)
        return Session(folder=folder, config=config, started=chronicle.started, chronicle=chronicle, opening=opening)
    settings = SearchSettings(branches=1, stagnation_window=2, confirm=False, budget=budget)
    config = RunConfig(task="relu.py", runs_dir=str(folder.path.parent), search=settings)
    folder.path.mkdir(parents=True, exist_ok=True)
    save_config(config, folder.config)
    first = story()[0].body
    assert isinstance(first, RunStarted)
    started = msgspec.structs.replace(first, settings=settings, run_id=folder.run_id)
    return Session(folder=folder, config=config, started=started, chronicle=Run(), opening=started)


async def lead(folder: RunFolder, rounds: int, *, latency_s: float = LATENCY_S) -> Session:
    session = session_of(folder, rounds)
    tools = Tools(
        model=ScriptedModel(answered, latency_s=latency_s),
        builder=SimulatedBuilder(),
        evaluator=SimulatedEvaluator(lambda _: FAST, wall_s=latency_s),
    )

    def tell(record: Record) -> None:
        session.chronicle.fold(record)

    with anyio.fail_after(60):
        await lead_session(session, tools, tell=tell)
    return session


if __name__ == "__main__":
    anyio.run(lead, RunFolder(Path(sys.argv[1])), int(sys.argv[2]))
