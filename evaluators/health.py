"""Is a device still fit to judge on? One that is not takes itself out of service, and comes back when it works again.

- `Health(device: str, ails: Ails)`
- `SickDeviceError`: an `EvaluatorError`; permanent, so that the job goes elsewhere and this queue rests

What breaks on a GPU breaks for one process at first: a runner is replaced with every candidate, a judge after every
failure. Only if a process that has nothing to do with either cannot use the device, either, is it the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import anyio
import anyio.to_thread

from messages.errors import EvaluatorError

Ails: TypeAlias = Callable[[str], str]
"""Says what is wrong with a device; empty: nothing. Blocks."""
REST_S = 60.0
"""A sick device is not looked at again before."""


class SickDeviceError(EvaluatorError):
    """A device does not work, whoever asks it."""

    def __init__(self, device: str, what: str) -> None:
        super().__init__(
            f"{device} is out of service: {what}; `nvidia-smi -q` may tell more, it is tried again", permanent=True
        )


class Health:
    """What is known of one device."""

    def __init__(self, device: str, ails: Ails | None) -> None:
        """Suppose that it works.

        Args:
            device: as jobs name it.
            ails: looks at it; null: nothing is ever wrong with it.
        """
        self._device = device
        self._ails = ails
        self._sick = ""
        self._looked_at = 0.0

    @property
    def is_resting(self) -> bool:
        """Whether it was found sick and is not to be tried yet."""
        return bool(self._sick) and anyio.current_time() - self._looked_at < REST_S

    async def require(self) -> None:
        """See that it is in service.

        Raises:
            SickDeviceError: it is not.
        """
        if self._sick and not self.is_resting:
            await self._look()
        if self._sick:
            raise SickDeviceError(self._device, self._sick)

    async def blame(self, error: EvaluatorError) -> EvaluatorError:
        """Return whose fault a judge's failure was: the device's, or what it said itself."""
        await self._look()
        return SickDeviceError(self._device, self._sick) if self._sick else error

    async def _look(self) -> None:
        if self._ails is not None:
            self._sick = await anyio.to_thread.run_sync(self._ails, self._device)
            self._looked_at = anyio.current_time()
