"""Who may time, and who may check meanwhile."""

from __future__ import annotations

import anyio
import pytest

from evaluators.lease import HostLease
from evaluators.quiet import QuietDevice

pytestmark = pytest.mark.anyio


async def test_a_lease_of_the_host_has_one_holder_also_between_evaluators() -> None:
    one, other = HostLease("test"), HostLease("test")
    async with one:
        with anyio.move_on_after(0.05) as scope:
            async with other:
                pytest.fail("held twice")
        assert scope.cancelled_caught
    with anyio.fail_after(1):
        async with other:
            pass


async def test_leases_of_different_devices_are_independent() -> None:
    with anyio.fail_after(1):
        async with HostLease("test-a"), HostLease("test-b"):
            pass


@pytest.mark.virtual_time
async def test_checks_share_the_device_and_a_timing_has_it_alone() -> None:
    device, log = QuietDevice(), list[str]()

    async def check(name: str) -> None:
        async with device.checking():
            log.append(f"+{name}")
            await anyio.sleep(1)
            log.append(f"-{name}")

    async def time(name: str) -> None:
        async with device.timing():
            log.append(f"+{name}")
            await anyio.sleep(1)
            log.append(f"-{name}")

    async with anyio.create_task_group() as group:
        group.start_soon(check, "c1")
        group.start_soon(check, "c2")
        await anyio.sleep(0.1)
        group.start_soon(time, "t")
        await anyio.sleep(0.1)
        group.start_soon(check, "c3")
    assert log[:2] == ["+c1", "+c2"]
    assert set(log[2:4]) == {"-c1", "-c2"}
    assert log[4:] == ["+t", "-t", "+c3", "-c3"]


@pytest.mark.virtual_time
async def test_a_timing_that_is_given_up_lets_the_checks_go_on() -> None:
    device = QuietDevice()

    async def check() -> None:
        async with device.checking():
            await anyio.sleep(1)

    async def wait_in_vain() -> None:
        with anyio.move_on_after(0.2):
            async with device.timing():
                pytest.fail("a check is in flight")

    async with anyio.create_task_group() as group:
        group.start_soon(check)
        await anyio.sleep(0.1)
        group.start_soon(wait_in_vain)
        await anyio.sleep(0.1)
        with anyio.fail_after(0.2):
            async with device.checking():
                pass
