"""A distributed run is for one kind of device: the one of the evaluators that are there."""

from __future__ import annotations

import anyio
import pytest

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from evaluators.simulated import SIMULATED
from ksearch_async.fleet.nats_runs import check_platform, choose_target
from ksearch_async.runs.resume import Start
from messages.base import ConfigError
from messages.presence import Presence, Served, WorkerState, encode_entry, node_key
from messages.tasks import Target
from tests.ksearch_async.stories import TARGET

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

OLDER = Target(arch="x86_64", march="x86-64-v2", toolchain="g++ 12", device="AMD EPYC")


@pytest.fixture
def bus() -> MemoryBus:
    return MemoryBus(lambda _: MemoryStore())


async def joins(bus: MemoryBus, name: str, *targets: Target, state: WorkerState = "ready") -> None:
    served = tuple(Served(language="cpp", target=target) for target in targets)
    presence = Presence(
        name=name, role="evaluator", host="h", pid=1, version="0", state=state, served=served, started_at="", seen_at=""
    )
    await bus.put(node_key("evaluator", name), encode_entry(presence), revision=0)


async def test_many_evaluators_of_one_device_are_one_target(bus: MemoryBus) -> None:
    await joins(bus, "a", TARGET)
    await joins(bus, "b", TARGET)
    await joins(bus, "c", SIMULATED, state="proving")
    assert await choose_target(bus, "cpp", None, None, Start()) == TARGET
    assert await choose_target(bus, "cpp", TARGET, None, Start()) == TARGET


async def test_of_several_devices_one_has_to_be_named(bus: MemoryBus) -> None:
    await joins(bus, "a", TARGET)
    await joins(bus, "b", SIMULATED)
    with pytest.raises(ConfigError, match=r"'AMD EPYC' .*, 'simulated'") as refused:
        await choose_target(bus, "cpp", None, None, Start())
    assert "--arch" in refused.value.__notes__[0]
    assert await choose_target(bus, "cpp", None, "epyc", Start()) == TARGET
    assert await choose_target(bus, "cpp", None, "SIMULATED", Start()) == SIMULATED


async def test_the_same_device_with_other_instructions_is_another_target(bus: MemoryBus) -> None:
    await joins(bus, "a", TARGET)
    with pytest.raises(ConfigError, match="several devices"):
        await choose_target(bus, "cpp", OLDER, None, Start())


async def test_without_an_evaluator_one_is_waited_for(bus: MemoryBus) -> None:
    said: list[str] = []
    start = Start(said.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_joins_later, bus)
        assert await choose_target(bus, "cpp", None, None, start) == TARGET
    assert said == ["no evaluator for cpp is there; waiting up to 30 s for one"]
    assert start.doing == "checking the reference"


async def _joins_later(bus: MemoryBus) -> None:
    await anyio.sleep(20)
    await joins(bus, "late", TARGET)


async def test_one_that_still_proves_itself_is_waited_for_longer(bus: MemoryBus) -> None:
    said: list[str] = []
    await joins(bus, "slow", TARGET, state="proving")

    async def is_ready_late() -> None:
        await anyio.sleep(200)
        await joins(bus, "quick", TARGET)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(is_ready_late)
        assert await choose_target(bus, "cpp", None, None, Start(said.append)) == TARGET
    assert said == ["no evaluator for cpp is ready yet; waiting up to 600 s for one"]


async def test_one_that_proves_itself_for_another_language_is_not(bus: MemoryBus) -> None:
    await joins(bus, "a", SIMULATED, state="proving")
    began = anyio.current_time()
    with pytest.raises(ConfigError, match="still proving themselves: 1"):
        await choose_target(bus, "triton", None, None, Start())
    assert 30 <= anyio.current_time() - began < 32


async def test_if_none_comes_it_is_said_who_is_there_and_what_to_start(bus: MemoryBus) -> None:
    await joins(bus, "a", SIMULATED)
    began = anyio.current_time()
    with pytest.raises(ConfigError, match="no evaluator for triton is there; there are: cpp on simulated") as refused:
        await choose_target(bus, "triton", None, None, Start())
    assert 30 <= anyio.current_time() - began < 32
    assert "ksearch evaluator --nats" in refused.value.__notes__[0]


async def test_this_machine_judges_if_it_is_to_and_nobody_else_does(bus: MemoryBus) -> None:
    assert await choose_target(bus, "cpp", TARGET, None, Start()) == TARGET


def test_a_run_for_gpus_is_not_described_on_a_cpu_nor_the_other_way_round() -> None:
    gpu = Target(arch="sm_90", march="", toolchain="triton 3.7.1", device="NVIDIA H200")
    check_platform(gpu, "cuda:0,cuda:1")
    check_platform(TARGET, "cpu")
    check_platform(SIMULATED, "cpu")
    with pytest.raises(ConfigError, match="NVIDIA H200") as refused:
        check_platform(gpu, "cpu")
    assert "--device cuda:0" in refused.value.__notes__[0]
    with pytest.raises(ConfigError, match="AMD EPYC"):
        check_platform(TARGET, "cuda:0")
