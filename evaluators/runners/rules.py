"""Holds a candidate in this process to its task's rules: which operators it may call, that it launches kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evaluators.runners.base import NO_KERNEL

if TYPE_CHECKING:
    from evaluators.runners.denial import Denial
    from evaluators.runners.launches import Launches


class Rules:
    """Made before the candidate is imported. Says by the status of its calls whether it kept to them."""

    def __init__(self, terms: Mapping[str, object], denial: Denial) -> None:
        """Put them in force.

        Args:
            terms: those of `evaluators/judge/check/terms.py`.
            denial: of the operators that they deny.
        """
        self._denial = denial
        denial.keep()
        self._launches = _watch_launches() if terms["launches"] else None

    def of_load(self, status: int) -> int:
        """Return what to answer for a load that ended with a status."""
        return self._denial.status(status)

    def of_call(self, call: Callable[[], int]) -> Callable[[], int]:
        """Return a call that answers for the rules, too."""

        def watched() -> int:
            if self._launches is not None:
                self._launches.forget()
            status = call()
            if status == 0 and self._launches is not None and not self._launches.count:
                status = NO_KERNEL
            return self._denial.status(status)

        return watched


def _watch_launches() -> Launches:
    from evaluators.runners.launches import Launches  # noqa: PLC0415 - Triton's interpreter needs numpy, modules have none

    return Launches()
