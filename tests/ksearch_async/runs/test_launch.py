"""A whole run in this process: real bus, journal and actors; answers, builds and verdicts are scripted."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.bus.journal import JournalStore, read_journal
from actors.llm.base import Request, ScriptedModel
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.cli.session import conduct, heed_signals
from ksearch_async.errors import single_error
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.resume import Opened, Opening, Session, Start, StopSwitch, Tools, check_reopening, lead_session
from ksearch_async.runs.run import Run
from ksearch_async.settings.models import lineup_of
from ksearch_async.settings.run_config import RunConfig, load_config, save_config
from messages.base import BusError, ConfigError, ModelError
from messages.codec import Record
from messages.events import CandidateEvaluated, CandidateWritten, RunResumed, RunStarted, StopRequested
from messages.settings import Budget, SearchSettings
from tests.ksearch_async.stories import FAST, RUN_ID, TARGET, story

pytestmark = pytest.mark.anyio

SETTINGS = SearchSettings(branches=2, stagnation_window=2, budget=Budget(max_rounds=6))


def answered(request: Request) -> str:
    """Propose actions whose titles no other answer has, or write a program that no other answer has."""
    if request.role == "planner":
        action = {"op": "insert", "parent": "n0", "description": "", "difficulty": 1, "priority": 0.5}
        return json.dumps({"edits": [{**action, "title": f"{request.request_id} {number}"} for number in range(4)]})
    return f'```cpp\nextern "C" int ksearch_run() {{ return 0; }} // {request.request_id}\n```'


def new_session(tmp_path: Path, settings: SearchSettings = SETTINGS) -> Session:
    config = RunConfig(task="relu.py", runs_dir=str(tmp_path), search=settings)
    folder = RunFolder(tmp_path / RUN_ID)
    folder.path.mkdir()
    save_config(config, folder.config)
    opening = story()[0].body
    assert isinstance(opening, RunStarted)
    started = msgspec.structs.replace(opening, settings=settings)
    return Session(folder=folder, config=config, started=started, chronicle=Run(), opening=started)


async def led(
    session: Session,
    *,
    latency_s: float = 0.0,
    answers: Callable[[Request], str | Exception] = answered,
    tell: Callable[[Record], None] = lambda _: None,
) -> list[str]:
    """Lead a session, fold its records, and return the notes that a person would have seen."""
    notes: list[str] = []

    def folded(record: Record) -> None:
        session.chronicle.fold(record)
        tell(record)

    tools = Tools(
        model=ScriptedModel(answers, latency_s=latency_s),
        builder=SimulatedBuilder(),
        evaluator=SimulatedEvaluator(lambda _: FAST, wall_s=latency_s),
    )
    stop, now = StopSwitch(), anyio.CancelScope()
    with single_error():
        async with anyio.create_task_group() as beside:
            await beside.start(heed_signals, stop, now, notes.append)
            with now:
                await lead_session(session, tools, tell=folded, stop=stop)
            beside.cancel_scope.cancel()
    return notes


def bodies(folder: RunFolder, kind: type) -> list[object]:
    return [record.body for record in read_journal(folder.journal) if isinstance(record.body, kind)]


async def test_a_run_uses_its_rounds_and_says_what_ended_it(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    finished = session.chronicle.finished
    assert finished is not None
    assert (finished.stopped_by, finished.rounds) == ("rounds", 6)
    assert session.chronicle.best("best") is not None


async def test_the_recorded_best_is_there_when_the_run_is_over(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    best = session.chronicle.best(str(session.folder.best))
    assert best is not None
    texts = [path.read_text() for path in session.folder.best.rglob("*.cpp")]
    assert len(texts) == 1
    assert (session.folder.candidates / best.candidate_id).is_dir()


async def test_ctrl_c_lets_what_is_in_flight_finish_and_the_run_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    session = new_session(tmp_path)

    interrupted: list[Record] = []

    def interrupt(record: Record) -> None:
        if isinstance(record.body, CandidateEvaluated) and not interrupted:
            interrupted.append(record)
            os.kill(os.getpid(), signal.SIGINT)

    with anyio.fail_after(20):
        notes = await led(session, latency_s=0.05, tell=interrupt)
    finished = session.chronicle.finished
    assert finished is not None
    assert finished.stopped_by == "interrupted"
    assert "again stops now" in notes[0]
    assert bodies(session.folder, StopRequested)
    await goes_on_to_its_end(session)


async def test_a_second_ctrl_c_stops_now_and_the_run_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    session = new_session(tmp_path)

    interrupted: list[Record] = []

    def interrupt(record: Record) -> None:
        if isinstance(record.body, StopRequested) or (isinstance(record.body, CandidateEvaluated) and not interrupted):
            interrupted.append(record)
            os.kill(os.getpid(), signal.SIGINT)

    with anyio.fail_after(20):
        notes = await led(session, latency_s=0.05, tell=interrupt)
    assert session.chronicle.finished is None
    assert notes[-1] == "stopping now"
    await goes_on_to_its_end(session)


def opening_of(
    session: Session, answers: Callable[[Request], str | Exception] = answered
) -> Callable[[Start], Opening]:
    @asynccontextmanager
    async def opening(_: Start) -> AsyncIterator[Opened]:
        evaluator = SimulatedEvaluator(lambda _: FAST)
        tools = Tools(model=ScriptedModel(answers), builder=SimulatedBuilder(), evaluator=evaluator)
        yield session, partial(lead_session, session, tools)

    return opening


def test_garbage_is_looked_for_while_a_search_goes_on(tmp_path: Path) -> None:
    session, found = new_session(tmp_path), set[bool]()

    def noting(request: Request) -> str:
        found.add(gc.isenabled())
        return answered(request)

    gc.disable()  # as `main` does for the start
    try:
        conduct(opening_of(session, noting), view="plain", as_json=False)
    finally:
        gc.unfreeze()
        gc.enable()
    assert found == {True}


def test_a_run_whose_problem_file_is_gone_says_that_it_needs_it_no_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session, problem = new_session(tmp_path), tmp_path / "problem.py"
    config = msgspec.structs.replace(session.config, task=str(problem))
    opening = opening_of(msgspec.structs.replace(session, config=config))
    try:
        conduct(opening, view="plain", as_json=False)
    finally:
        gc.unfreeze()
    shown = capsys.readouterr()
    assert f"{str(problem)!r} is not there: the run goes on with its own copy of the task" in shown.err
    assert f"check it   ksearch eval {session.folder.path}\n" in shown.out


async def goes_on_to_its_end(session: Session) -> None:
    """Resume, finish, and check that no answer was paid for and nothing measured twice."""
    resumed = await check_reopening(session.folder, session.config)
    with anyio.fail_after(20):
        await led(resumed)
    finished = resumed.chronicle.finished
    assert finished is not None
    assert (finished.stopped_by, finished.rounds) == ("rounds", 6)
    for kind in (CandidateWritten, CandidateEvaluated):
        jobs = [getattr(body, "job_id") for body in bodies(session.folder, kind)]  # noqa: B009 - the union's members all have it
        assert len(jobs) == len(set(jobs))


@pytest.fixture(autouse=True)
def this_machine_is_the_storys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluators.hardware.target.probe_target", lambda *_: TARGET)


async def test_a_run_that_is_over_is_not_opened_again_unless_it_gets_more_rounds(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    assert (await check_reopening(session.folder, session.config)).is_over
    search = msgspec.structs.replace(SETTINGS, budget=Budget(max_rounds=9))
    more = await check_reopening(session.folder, msgspec.structs.replace(session.config, search=search))
    lineup = lineup_of(session.config, {})
    assert more.opening == RunResumed(run_id=RUN_ID, budget=Budget(max_rounds=9), lineup=lineup)
    with anyio.fail_after(20):
        await led(more)
    assert more.chronicle.state.rounds == 9


async def test_fewer_rounds_than_were_used_are_refused(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    await led(session)
    search = msgspec.structs.replace(SETTINGS, budget=Budget(max_rounds=5))
    with pytest.raises(ConfigError, match="has used 6 rounds already, and may have 5"):
        await check_reopening(session.folder, msgspec.structs.replace(session.config, search=search))


async def test_a_run_whose_folder_was_renamed_goes_on_under_the_name_in_its_journal(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    folder = RunFolder(tmp_path / "a-better-name")
    session.folder.path.rename(folder.path)
    search = msgspec.structs.replace(SETTINGS, budget=Budget(max_rounds=9))
    renamed = await check_reopening(folder, msgspec.structs.replace(session.config, search=search))
    with anyio.fail_after(20):
        await led(renamed)
    assert renamed.chronicle.state.rounds == 9


@pytest.mark.parametrize("records", [1, 2, 3])
async def test_a_run_that_was_killed_at_its_very_start_goes_on(tmp_path: Path, records: int) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    lines = session.folder.journal.read_bytes().splitlines(keepends=True)
    session.folder.journal.write_bytes(b"".join(lines[:records]))
    await goes_on_to_its_end(session)


async def test_a_run_in_use_keeps_its_configuration_when_another_resume_is_refused(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    search = msgspec.structs.replace(SETTINGS, budget=Budget(max_rounds=9))
    other = await check_reopening(session.folder, msgspec.structs.replace(session.config, search=search))
    holder = JournalStore(session.folder.journal, sync="never")
    holder.load()
    with pytest.raises(BusError, match="is in use"):
        await led(other)
    holder.close()
    assert load_config(session.folder.config).search.budget.max_rounds == 6
    with anyio.fail_after(20):
        await led(other)
    assert load_config(session.folder.config).search.budget.max_rounds == 9


async def test_a_changed_search_setting_is_refused_by_name(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    search = msgspec.structs.replace(SETTINGS, branches=9)
    with pytest.raises(ConfigError, match=r"search\.branches differs"):
        await check_reopening(session.folder, msgspec.structs.replace(session.config, search=search))


async def test_a_problem_file_that_changed_is_refused(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    problem = tmp_path / "relu.py"
    problem.write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    config = msgspec.structs.replace(session.config, task=str(problem))
    save_config(config, session.folder.config)
    with pytest.raises(ConfigError, match="has changed since"):
        await check_reopening(session.folder, config)


async def test_another_machine_may_not_go_on_with_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session)
    other = msgspec.structs.replace(TARGET, march="znver4")
    monkeypatch.setattr("evaluators.hardware.target.probe_target", lambda *_: other)
    search = msgspec.structs.replace(SETTINGS, budget=Budget(max_rounds=9))
    with pytest.raises(ConfigError, match="this machine is another"):
        await check_reopening(session.folder, msgspec.structs.replace(session.config, search=search))


async def test_a_model_that_fails_for_good_ends_the_run_as_an_infrastructure_failure(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    with anyio.fail_after(20):
        await led(session, answers=lambda _: ModelError("no such model", permanent=True))
    finished = session.chronicle.finished
    assert finished is not None
    assert (finished.stopped_by, finished.detail) == ("infrastructure", "no such model")


async def test_two_processes_cannot_lead_one_run(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    refused: list[str] = []

    async def intrude() -> None:
        with pytest.raises(BusError) as caught:
            await led(session)
        refused.append(str(caught.value))

    def start_another(record: Record) -> None:
        if isinstance(record.body, RunStarted):
            tasks.start_soon(intrude)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await led(session, latency_s=0.02, tell=start_another)
    assert len(refused) == 1
    assert "is in use" in refused[0]
