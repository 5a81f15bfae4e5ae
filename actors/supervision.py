"""Supervision: restarts a crashed actor, and ends a run if its actor keeps crashing.

The only place where `except Exception` is allowed: here an unknown error can be handled, by a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import structlog
from anyio.abc import TaskStatus

from messages.base import BusError

T = TypeVar("T")


async def see_through(publish: Callable[[], Awaitable[T]], *, within_s: float) -> T:
    """Publish; if cancelled, publish once more within `within_s`, then re-raise. Message ids prevent duplicates."""
    try:
        return await publish()
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(within_s, shield=True), suppress(BusError):
            await publish()
        raise


FIRST_PAUSE_S = 0.5
"""Pause before the first restart; doubled for each further restart within the window."""

log = structlog.get_logger(__name__)


async def supervise(
    name: str,
    start: Callable[..., Awaitable[object]],
    *,
    restarts: int = 3,
    within_s: float = 60.0,
    is_vital: bool = True,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Run an actor until it returns or is cancelled, and restart it when it crashes.

    An actor that crashes before `started` is not restarted, since its environment is wrong.

    Args:
        name: name for the log.
        start: the actor; called with `task_status` only.
        restarts: restarts allowed within the window.
        within_s: length of the window.
        is_vital: raise the last crash after too many; otherwise log it and return.
        task_status: notified when the actor has started for the first time.
    """
    crashes: deque[float] = deque()
    first = Once(task_status)
    while True:
        try:
            await start(task_status=first)
        except Exception as error:
            now = anyio.current_time()
            crashes.append(now)
            while now - crashes[0] > within_s:
                crashes.popleft()
            if not first.said or len(crashes) > restarts:
                log.error("actor failed", actor=name, crashes=len(crashes), error=_text_of(error))  # noqa: TRY400 - who called shows the traceback
                if is_vital:
                    raise
                return
            pause_s = FIRST_PAUSE_S * 2.0 ** (len(crashes) - 1)
            log.warning(
                "actor crashed; starting again", actor=name, pause_s=pause_s, error=_text_of(error), exc_info=error
            )
            await anyio.sleep(pause_s)
        else:
            return


class Once(TaskStatus[None]):
    """Forwards only the first call of `started`."""

    def __init__(self, task_status: TaskStatus[None]) -> None:
        self._task_status = task_status
        self.said = False

    def started(self, value: None = None) -> None:
        """Report the first start."""
        if not self.said:
            self.said = True
            self._task_status.started(value)


def _text_of(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_text_of(each) for each in error.exceptions)
    return f"{type(error).__name__}: {error}"
