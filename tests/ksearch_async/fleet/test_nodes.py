"""Nodes over the memory bus: they prove themselves, serve the runs that are there, and leave in order."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from actors.bus.base import QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.worker.member import Member
from evaluators.simulated import SIMULATED, hashed_verdict
from ksearch_async.fleet.nodes import (
    Building,
    Ending,
    Evaluating,
    NodeTerms,
    Work,
    presence_of,
    run_node,
    unique_name,
    verdict_words,
)
from ksearch_async.fleet.status import read_roster
from ksearch_async.fleet.workers import SimulatedDevice, device_of
from messages.base import ConfigError, EvaluatorError, Language
from messages.codec import decode_body, encode
from messages.commands import EvaluateCandidate
from messages.events import CandidateEvaluated
from messages.presence import RunCard, encode_entry, run_key
from messages.subjects import checked_id, evaluate_jobs
from messages.tasks import Target
from messages.verdicts import Interval, Measured, Wrong
from tests.evaluators.words import SMALL_TASK, cpp

pytestmark = pytest.mark.anyio

RUN = "r1"
QUEUE = evaluate_jobs(RUN, "cpp", SIMULATED.arch)
CARD = RunCard(
    run_id=RUN, task_name="small", language="cpp", target=SIMULATED, submitted_at="2026-01-01", updated_at="2026-01-01"
)
TERMS = NodeTerms(grace_s=10.0)


@pytest.fixture
async def bus() -> AsyncIterator[MemoryBus]:
    bus = MemoryBus(lambda _run_id: MemoryStore())
    await bus.open_stream(RUN)
    await bus.declare_queue(QueueSpec(name=QUEUE, run_id=RUN))
    yield bus
    bus.close()


def job(number: int) -> EvaluateCandidate:
    return EvaluateCandidate(
        job_id=f"j{number}",
        run_id=RUN,
        task=SMALL_TASK,
        candidate=cpp(f"candidate {number}"),
        artifact_id="ab",
        target=SIMULATED,
    )


async def submit(bus: MemoryBus, *numbers: int) -> None:
    for number in numbers:
        await bus.submit(QUEUE, encode(job(number)), msg_id=f"j{number}")


async def results(bus: MemoryBus, count: int) -> list[CandidateEvaluated]:
    found: list[CandidateEvaluated] = []
    events = bus.events(RUN)
    with anyio.fail_after(10):
        async for posted in events:
            body = decode_body(posted.payload)
            assert isinstance(body, CandidateEvaluated)
            found.append(body)
            if len(found) == count:
                break
    await events.aclose()
    return found


class Running:
    """A node in this process."""

    def __init__(self, bus: MemoryBus, work: Work, *, slots: int = 1) -> None:
        self.member = Member(bus, presence_of("evaluator", name="n", slots=slots, device="simulated"), every_s=1.0)
        self.ending: Ending | None = None
        self._bus = bus
        self._work = work

    async def __call__(self, terms: NodeTerms = TERMS) -> None:
        self.ending = await run_node(self._bus, self.member, self._work, terms)

    async def until(self, state: str) -> None:
        with anyio.fail_after(10):
            while self.member.presence.state != state:
                await self.member.changed()

    async def until_busy(self) -> None:
        with anyio.fail_after(10):
            while not self.member.presence.busy:  # noqa: ASYNC110 - a member tells of its state, not of its jobs
                await anyio.sleep(0.01)


def evaluating(seconds: float = 0.0, tmp_path: Path = Path()) -> Evaluating:
    return Evaluating(SimulatedDevice(seconds), tmp_path, ("cpp",))


async def test_a_node_joins_runs_that_go_on_and_those_that_come_later(bus: MemoryBus) -> None:
    node = Running(bus, evaluating())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node)
        await node.until("ready")
        await submit(bus, 1)
        await bus.put(run_key(RUN), encode_entry(CARD), revision=0)
        (result,) = await results(bus, 1)
        tasks.cancel_scope.cancel()
    assert result.verdict == hashed_verdict(cpp("candidate 1"))
    assert result.worker == node.member.name


async def test_a_run_for_another_device_is_left_alone(bus: MemoryBus) -> None:
    other = Target(arch="simulated", march="", toolchain="simulated", device="another")
    card = RunCard(run_id=RUN, task_name="small", language="cpp", target=other, submitted_at="2026", updated_at="2026")
    await bus.put(run_key(RUN), encode_entry(card), revision=0)
    await submit(bus, 1)
    node = Running(bus, evaluating())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: node(NodeTerms(idle_s=1.5)))
        await node.until("left")
    assert node.ending == "left"
    assert node.member.presence.tally.done == 0


async def test_sigterm_finishes_the_job_in_hand_and_leaves(bus: MemoryBus) -> None:
    await bus.put(run_key(RUN), encode_entry(CARD), revision=0)
    await submit(bus, 1, 2)
    node = Running(bus, evaluating(seconds=1.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node)
        await node.until_busy()
        os.kill(os.getpid(), signal.SIGTERM)
    assert node.ending == "left"
    assert node.member.presence.tally.done == 1
    assert len(await results(bus, 1)) == 1
    (entry,) = (await read_roster(bus)).nodes
    assert entry.has_ended


@pytest.mark.parametrize("signals", [1, 2])
async def test_when_the_grace_is_over_or_at_a_second_signal_the_job_is_handed_back(
    bus: MemoryBus, signals: int
) -> None:
    await bus.put(run_key(RUN), encode_entry(CARD), revision=0)
    await submit(bus, 1)
    node = Running(bus, evaluating(seconds=60.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: node(NodeTerms(grace_s=0.2 if signals == 1 else 60.0, again_s=0.0)))
        await node.until_busy()
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            await node.until("leaving")
    assert node.ending == "cut short"
    with anyio.fail_after(5):
        assert (await bus.pull(QUEUE)).attempt == 2


async def test_an_idle_node_leaves_when_it_is_told_to(bus: MemoryBus) -> None:
    node = Running(bus, evaluating())
    with anyio.fail_after(10):
        await node(NodeTerms(idle_s=0.1))
    assert node.ending == "left"


async def test_one_request_to_leave_may_come_as_several_signals(bus: MemoryBus) -> None:
    await bus.put(run_key(RUN), encode_entry(CARD), revision=0)
    await submit(bus, 1)
    node = Running(bus, evaluating(seconds=0.5))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(node)
        await node.until_busy()
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
            await node.until("leaving")
    assert node.ending == "left"
    assert node.member.presence.tally.done == 1


class BrokenDevice(SimulatedDevice):
    async def probe(self, language: Language) -> Target:
        raise EvaluatorError(f"no compiler for {language}")


async def test_a_node_that_can_do_nothing_says_why_and_takes_nothing(bus: MemoryBus) -> None:
    await bus.put(run_key(RUN), encode_entry(CARD), revision=0)
    await submit(bus, 1)
    node = Running(bus, Evaluating(BrokenDevice(0.0), Path(), ()))
    with anyio.fail_after(10):
        await node()
    assert node.ending == "unfit"
    (entry,) = (await read_roster(bus)).nodes
    assert entry.is_unfit
    assert "no compiler for cpp" in entry.presence.detail
    with anyio.fail_after(5):
        assert (await bus.pull(QUEUE)).attempt == 1


class HalfBrokenDevice(SimulatedDevice):
    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:  # noqa: ARG002
        if language == "triton":
            raise EvaluatorError("numpy is missing")


async def test_a_language_that_fails_its_proof_is_left_out_and_the_others_are_served(bus: MemoryBus) -> None:
    member = Member(bus, presence_of("builder", name=None, slots=1))
    served = await Building(HalfBrokenDevice(0.0), Path(), ()).prove(member)
    assert [each.language for each in served] == ["cpp"]


@pytest.mark.parametrize("name", [None, "GPU 0 of host.example.org", "x" * 200, "---"])
def test_names_of_nodes_are_unique_and_can_be_parts_of_subjects(name: str | None) -> None:
    names = {unique_name("evaluator", name) for _ in range(8)}
    assert len(names) > 1
    assert all(checked_id(each) == each for each in names)


@pytest.mark.parametrize("text", ["", "gpu", "cpu:1", "simulated:", "simulated:x", "simulated:-1", "simulated:inf"])
def test_a_device_that_is_not_known_is_refused(text: str) -> None:
    if text == "simulated:":
        assert device_of(text).name == "simulated"
        return
    with pytest.raises(ConfigError, match="--device"):
        device_of(text)


def test_a_gpu_is_a_device_of_this_host_with_languages_of_its_own() -> None:
    device = device_of("cuda:1")
    assert device.name == "cuda:1"
    assert "cuda" in device.languages
    assert "cpp" not in device.languages


def test_verdicts_are_said_in_a_few_words() -> None:
    measured = Measured(timed=True, speedup_vs_reference=1.8, speedup_interval=Interval(low=1.7, high=1.9))
    assert verdict_words(measured) == "measured 1.80x"
    assert verdict_words(Measured(timed=False)) == "correct, not timed"
    assert verdict_words(Wrong(reason="tail\ncolumns")) == "wrong: tail columns"
