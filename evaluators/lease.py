"""The right to time on a device: one holder at a time, on the whole host.

`HostLease(device: str = "cpu")`: `async with lease: ...`. Two runs on one host would otherwise time at once.
"""

from __future__ import annotations

import errno
import socket
from types import TracebackType
from typing import Protocol

import anyio

from messages.errors import EvaluatorError

_RETRY_S = 0.01


class Lease(Protocol):
    """The exclusive right to time on a device; `anyio.Lock` is one too, inside one process."""

    async def __aenter__(self) -> object:
        """Wait for it."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> object:
        """Give it back."""


class HostLease:
    """A lease for all processes of this host (of this network namespace, to be exact).

    It is the name of a socket in Linux's abstract namespace: the kernel gives it to one process at a time, takes it
    back when that one dies, and leaves no file.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._name = f"\0ksearch-lease-{device}"
        self._turn = anyio.Lock()
        self._held: socket.socket | None = None

    async def __aenter__(self) -> None:
        """Wait for it."""
        await self._turn.acquire()
        try:
            while self._held is None:
                self._held = self._try()
                if self._held is None:
                    await anyio.sleep(_RETRY_S)
        except BaseException:
            self._turn.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give it back."""
        if self._held is not None:
            self._held.close()
            self._held = None
        self._turn.release()

    def _try(self) -> socket.socket | None:
        try:
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:
            raise EvaluatorError(f"cannot take the timing lease of this host: {error}") from error
        try:
            claim.bind(self._name)
        except OSError as error:
            claim.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise EvaluatorError(f"cannot take the timing lease of this host: {error}") from error
        return claim
