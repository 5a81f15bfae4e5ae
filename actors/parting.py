"""What is seen through though its task is cancelled: saying on the stream what was paid for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import anyio

from messages.errors import BusError

T = TypeVar("T")


async def see_through(publish: Callable[[], Awaitable[T]], *, within_s: float) -> T:
    """Publish; if that is cancelled, once more within some seconds, and then be cancelled.

    Args:
        publish: may be called twice: what is published has an id, and is kept once.
        within_s: how long the second time may take. A bus that fails then has the last word.
    """
    try:
        return await publish()
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(within_s, shield=True), suppress(BusError):
            await publish()
        raise
