"""Ctrl-C and SIGTERM: the first lets what is in flight finish, the second stops now. Only commands heed them."""

from __future__ import annotations

import signal
from collections.abc import Callable

import anyio
from anyio.abc import TaskStatus

from ksearch_async.session import StopSwitch


async def heed_signals(
    stop: StopSwitch,
    now: anyio.CancelScope,
    note: Callable[[str], None],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Ask for a stop at the first signal and cancel at the second; after that, signals do what they always do.

    Args:
        stop: asked at the first signal.
        now: cancelled at the second.
        note: called with a line for the person at the terminal.
        task_status: told when signals are heeded.
    """
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for received in signals:
            if stop.was_asked:
                note("stopping now")
                now.cancel()
                return
            note("stopping when the evaluations in flight are done; again stops now")
            stop.ask(signal.Signals(received).name)


async def leave_at_signal(now: anyio.CancelScope, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
    """Cancel at the first signal: what is shown goes on without us."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            now.cancel()
            return
