"""A whole search with the offline model at the other end of HTTP: the same search, whatever happens on the way."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.bus.journal import read_journal
from actors.coder.prompts import system_rules
from actors.llm.base import Model, Request, Role
from actors.llm.chat import ChatModel
from actors.llm.offline import OfflineModel
from actors.llm.offline.mistakes import MISTAKES, Mistakes
from actors.llm.served.app import Conduct, FaultRates
from actors.planner.jobs import whole_records
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from ksearch_async.runs.folder import read_run
from ksearch_async.runs.resume import Session, Tools, lead_session
from ksearch_async.views.lines import Narrator, faults_line
from messages.codec import Record
from messages.events import CandidateWritten, EditsProposed, JobLost, RunResumed
from messages.facts import Decided, SpendRecorded
from messages.settings import Budget, SearchSettings, WorldModel
from messages.tasks import Candidate
from messages.verdicts import Interval, Measured, Verdict, Wrong
from tests.actors.llm.offline.prompts import description
from tests.actors.llm.served.serving import serving
from tests.ksearch_async.runs.test_launch import new_session

pytestmark = pytest.mark.anyio

ROUNDS = 16
INJECTED = {
    "rate_limit": "rate_limited",
    "server_error": "server_error",
    "hang": "timed_out",
    "cut": "broken_off",
    "endless": "too_long",
}
"""The server's word for a fault, and the gateway's."""


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


def verdict_of(candidate: Candidate) -> Verdict:
    """Judge by the program's hash: a deterministic device."""
    number = int(candidate.candidate_id[:6], 16)
    if number % 7 == 0:
        return Wrong(reason="7 of 64 elements are wrong")
    speedup = 0.5 + number % 400 / 100
    return Measured(
        timed=True,
        latency_us=100.0 / speedup,
        reference_latency_us=100.0,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=speedup * 0.98, high=speedup * 1.02),
        pairs=20,
    )


def session(folder: Path, *, branches: int, world_model: WorldModel = "evolving") -> Session:
    folder.mkdir()
    settings = SearchSettings(
        branches=branches, stagnation_window=3, budget=Budget(max_rounds=ROUNDS), world_model=world_model
    )
    new = new_session(folder, settings)
    started = msgspec.structs.replace(new.started, description=description())
    return msgspec.structs.replace(new, started=started, opening=started)


async def led(search: Session, model: Model) -> list[str]:
    """Lead a search to its end; return the lines that a person would have seen."""
    narrator = Narrator(search.chronicle)
    lines: list[str] = []

    def tell(record: Record) -> None:
        lines.extend(narrator.tell(record))

    tools = Tools(model=model, builder=SimulatedBuilder(), evaluator=SimulatedEvaluator(verdict_of))
    with anyio.fail_after(90):
        await lead_session(search, tools, tell=tell)
    await model.aclose()
    return lines


def records(search: Session) -> list[Record]:
    return list(whole_records(read_journal(search.folder.journal)))


def decisions(search: Session) -> list[object]:
    """Return all facts, but not how long answers took, nor what a prefix cache saved: the built-in rules have none."""
    facts = [fact for record in records(search) if isinstance(record.body, Decided) for fact in record.body.facts]
    return [
        msgspec.structs.replace(fact, usage=msgspec.structs.replace(fact.usage, cached_tokens=0), latency_s=0.0)
        if isinstance(fact, SpendRecorded)
        else fact
        for fact in facts
    ]


def answers(search: Session) -> list[tuple[Role, str, str]]:
    """Return role, prompt and answer of every call that was answered."""
    found: list[tuple[Role, str, str]] = []
    for record in records(search):
        if isinstance(record.body, CandidateWritten):
            prompt = record.body.prompt.removeprefix(f"{system_rules('cpp')}\n\n")
            found.append(("coder", prompt, record.body.answer))
        elif isinstance(record.body, EditsProposed):
            found.append(("planner", record.body.prompt, record.body.answer))
    return found


def journalled(search: Session) -> Counter[str]:
    """Return the failed tries that the journal tells of, by kind."""
    bodies = [record.body for record in records(search)]
    return Counter(
        fault.kind
        for body in bodies
        if isinstance(body, CandidateWritten | EditsProposed | JobLost)
        for fault in body.faults
    )


@pytest.mark.long
@pytest.mark.parametrize(("seed", "mistakes", "stopped_by"), [(7, 0.0, "exhausted"), (7, 0.3, "rounds")])
async def test_the_search_over_http_is_the_built_in_one(
    tmp_path: Path, seed: int, mistakes: float, stopped_by: str
) -> None:
    """One question at a time, so that the order of events is no matter of speed: one branch, one look at the task."""
    here = session(tmp_path / "here", branches=1, world_model="frozen")
    await led(here, OfflineModel(seed=seed, mistakes=mistakes))
    there = session(tmp_path / "there", branches=1, world_model="frozen")
    async with serving(seed=seed, mistakes=mistakes) as (served, base_url):
        await led(there, ChatModel(model="offline-rules", base_url=base_url))
    finished = here.chronicle.finished
    assert finished is not None
    assert finished.stopped_by == stopped_by
    assert (finished.rounds == ROUNDS) is (stopped_by == "rounds")
    assert decisions(there) == decisions(here)
    assert answers(there) == answers(here)
    assert served.report().ids_paid_twice == ()
    assert served.report().answered == there.chronicle.state.usage.calls


async def test_every_answer_over_http_is_the_one_that_the_built_in_rules_give_to_its_prompt(tmp_path: Path) -> None:
    """No answer thinks aloud here: one endpoint does not mark reasoning in the ways of several model families."""
    search = session(tmp_path / "run", branches=4)
    kinds = [kind for kind in MISTAKES if kind != "thinks_aloud"]
    async with serving(seed=7, mistakes=Mistakes(0.2, seed=7, kinds=kinds)) as (_, base_url):
        await led(search, ChatModel(model="offline-rules", base_url=base_url))
    built_in = OfflineModel(seed=7, mistakes=Mistakes(0.2, seed=7, kinds=kinds))
    roles = set()
    for role, prompt, text in answers(search):
        asked = Request(request_id="", role=role, system="", parts=(prompt,))
        assert text == (await built_in.complete(asked)).text
        roles.add(role)
    assert roles == {"planner", "coder"}


@pytest.mark.long
async def test_with_a_tenth_of_each_fault_the_budget_is_used_and_the_journal_explains_every_fault(
    tmp_path: Path,
) -> None:
    search = session(tmp_path / "run", branches=4)
    tenth = FaultRates(rate_limit=0.1, server_error=0.1, hang=0.1, cut=0.1, endless=0.1)
    async with serving(Conduct(faults=tenth, seed=2, retry_after_s=0.05), mistakes=0.1) as (served, base_url):
        lines = await led(search, ChatModel(model="offline-rules", base_url=base_url, timeout_s=1.5))
    finished = search.chronicle.finished
    assert finished is not None
    assert (finished.stopped_by, finished.rounds) == ("rounds", ROUNDS)
    report = served.report()
    assert len(report.faults) >= 4
    in_flight = report.requests - report.answered - report.abandoned - sum(report.faults.values())
    assert in_flight == 0
    told = journalled(search)
    between_tries = max(0, told["timed_out"] - report.faults["hang"])  # a call's time also runs out in a pause
    told["timed_out"] -= between_tries
    for kind, count in report.faults.items():
        assert told[INJECTED[kind]] <= count
    missing = sum(report.faults.values()) - told.total()
    # Four branches' and one of the planner's: a call's faults are told when it ends.
    assert 0 <= missing <= 5, "only calls that the run's end cut short may be missing"
    assert report.ids_paid_twice == ()
    assert sum("endpoint: " in line or "lost: " in line for line in lines) >= told.total() / 5
    assert str(told["rate_limited"]) in faults_line(search.chronicle)


async def test_a_run_whose_endpoint_was_never_there_can_go_on_when_it_is(tmp_path: Path) -> None:
    search = session(tmp_path / "run", branches=1)
    async with serving() as (_, base_url):
        pass
    begun = anyio.current_time()
    lines = await led(search, ChatModel(model="offline-rules", base_url=base_url))
    assert anyio.current_time() - begun < 30
    finished = search.chronicle.finished
    assert finished is not None
    assert finished.stopped_by == "infrastructure"
    assert "cannot be reached (Connection refused): check the address" in finished.detail
    assert journalled(search).keys() == {"unreachable"}
    assert any(line.startswith("  lost: ") for line in lines)
    opening = RunResumed(run_id=search.started.run_id)
    again = msgspec.structs.replace(search, chronicle=read_run(search.folder), opening=opening)
    async with serving() as (_, base_url):
        await led(again, ChatModel(model="offline-rules", base_url=base_url))
    assert again.chronicle.finished is not None
    assert again.chronicle.finished.stopped_by == "rounds"
