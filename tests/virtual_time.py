"""An event loop with a jumping clock for tests and simulations.

Actors take time from anyio only, so the loop decides the length of a second: on `VirtualTimeLoop` minutes of time-outs
pass in milliseconds, always in the same order.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Mapping
from typing import Any


class DeadlockError(RuntimeError):
    """Every task waits for another one, or only timers go on for ever."""


HORIZON_S = float(1 << 23)
"""End of virtual time (97 days): beyond it a float cannot resolve asyncio's nanoseconds."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and jumps to the next timer as soon as nothing else can run.

    Use it as `anyio.run(main, backend_options={"loop_factory": VirtualTimeLoop})`. Not covered: threads and sockets,
    which are late by any measure of virtual time; waiting for a thread without a pending timer looks like a deadlock.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)
        self._jumping.own_registrations = len(self._jumping.get_map())

    def time(self) -> float:
        """Return the seconds of virtual time since the loop was made."""
        return self._jumping.now_s


class _JumpingSelector(selectors.BaseSelector):
    """A selector that polls real files and advances the clock instead of waiting.

    asyncio hands `select` the time to the next timer, 0 if something is ready, None without timers.
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
