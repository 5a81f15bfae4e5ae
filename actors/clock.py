"""Time: an event loop whose clock jumps, for tests and simulations, and the wall clock's ISO stamps.

Actors take time from anyio only (`anyio.sleep`, `anyio.current_time`, `anyio.fail_after`), so the loop decides what a
second is. On `VirtualTimeLoop` minutes of time-outs pass in milliseconds, and always in the same order.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any


class DeadlockError(RuntimeError):
    """Every task waits for another one; nothing that could wake any of them is left, or only timers go on for ever."""


HORIZON_S = float(1 << 23)
"""How long virtual time may go on (97 days): further on, a float no longer tells asyncio's nanoseconds apart."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and jumps to the next timer as soon as nothing else can run.

    Use it as `anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})`.

    Not covered: threads and sockets. A timer fires as soon as all tasks wait, so whatever runs outside the loop is
    late by any measure of virtual time; a task that waits for a thread while no timer is pending looks like a deadlock.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._jumping.own_registrations = len(self._jumping.get_map())

    def time(self) -> float:
        """Return the seconds of virtual time since the loop was made."""
        return self._jumping.now_s


class _JumpingSelector(selectors.BaseSelector):
    """A selector that polls what is real and advances the clock instead of waiting.

    asyncio hands `select` the time until the next timer, 0 if something is ready and None if no timer is pending:
    all that a virtual clock must know, by a public interface.
    """

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now_s = 0.0
        self.own_registrations = 0
        """How many files asyncio registers for itself (its self-pipe); further ones are the program's I/O."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = self._real.select(0)
        if found or timeout == 0:
            return found
        if timeout is not None:
            # At least one step of the float: a time-out below it would otherwise be waited for in vain, for ever.
            self.now_s = max(self.now_s + timeout, math.nextafter(self.now_s, math.inf))
            if self.now_s > HORIZON_S:
                raise DeadlockError(f"virtual time has passed {HORIZON_S:.0f} s: only timers go on, and nothing ends")
            return found
        if len(self._real.get_map()) > self.own_registrations:
            return self._real.select(None)
        raise DeadlockError(
            f"deadlock at {self.now_s:.3f} s of virtual time: every task waits and no timer is pending "
            "(a task that waits for a thread looks the same: virtual time has none)"
        )

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


def utc_now() -> str:
    """Return the wall clock as ISO 8601 in UTC with microseconds, e.g. `2026-01-31T12:00:00.000000+00:00`."""
    return datetime.now(UTC).isoformat(timespec="microseconds")
