from __future__ import annotations

import asyncio
import socket
import time

import anyio
import pytest

from actors.clock import utc_now
from tests.virtual_time import HORIZON_S, DeadlockError, VirtualTimeLoop

VIRTUAL = {"loop_factory": VirtualTimeLoop}


def test_an_hour_of_sleep_takes_no_time() -> None:
    async def main() -> float:
        began = anyio.current_time()
        await anyio.sleep(3600)
        return anyio.current_time() - began

    began = time.monotonic()
    assert anyio.run(main, backend_options=VIRTUAL) == pytest.approx(3600)
    assert time.monotonic() - began < 5


def test_sleepers_wake_in_the_order_of_their_alarms() -> None:
    woken: list[float] = []

    async def sleeper(seconds: float) -> None:
        await anyio.sleep(seconds)
        woken.append(seconds)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for seconds in (3.0, 0.5, 100_000.0, 2.0):
                tasks.start_soon(sleeper, seconds)

    anyio.run(main, backend_options=VIRTUAL)
    assert woken == [0.5, 2.0, 3.0, 100_000.0]


def test_a_time_out_ends_a_wait_for_what_never_comes() -> None:
    async def main() -> float:
        with anyio.move_on_after(30):
            await anyio.Event().wait()
        return anyio.current_time()

    assert anyio.run(main, backend_options=VIRTUAL) == pytest.approx(30)


def test_waiting_for_what_nobody_will_do_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await anyio.Event().wait()

    with pytest.raises(DeadlockError, match=r"deadlock at 0\.000 s of virtual time"):
        anyio.run(main, backend_options=VIRTUAL)


def test_real_input_is_read_before_the_clock_jumps() -> None:
    async def main() -> float:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: loop.call_soon(theirs.send, b"x"))  # once the receiver waits for it
            with anyio.fail_after(1e-6):
                await loop.sock_recv(ours, 1)
        return anyio.current_time()

    assert anyio.run(main, backend_options=VIRTUAL) == 0


def test_a_wait_shorter_than_the_clock_can_tell_ends() -> None:
    async def main() -> None:
        await anyio.sleep(HORIZON_S - 1)
        await anyio.sleep(1e-12)

    anyio.run(main, backend_options=VIRTUAL)


def test_a_program_that_only_sleeps_is_stopped_at_the_horizon() -> None:
    async def main() -> None:
        for _ in range(4):
            await anyio.sleep(HORIZON_S / 3)

    with pytest.raises(DeadlockError, match="only timers go on"):
        anyio.run(main, backend_options=VIRTUAL)


def test_stamps_sort_as_text_and_say_their_zone() -> None:
    first, second = utc_now(), utc_now()
    assert first <= second
    assert first.endswith("+00:00")
    assert len(first) == len("2026-01-31T12:00:00.000000+00:00")
