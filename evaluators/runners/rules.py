"""Holds a candidate in this process to its task's rules: which operators it may call, that it launches kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from evaluators.runners.base import NO_KERNEL
from evaluators.runners.denial import Denial

if TYPE_CHECKING:
    from evaluators.runners.launches import Launches


class Rules:
    """Made before the candidate is imported. Says by the status of its calls whether it kept to them."""

    def __init__(self, spec: Mapping[str, object]) -> None:
        """Put them in force.

        Args:
            spec: `RunnerSpec`; its terms are those of `evaluators/judge/terms.py`.
        """
        terms = spec["terms"]
        found: Mapping[str, object] = terms if isinstance(terms, dict) else {}
        denied = found["denied"]
        self._denial = Denial([str(name) for name in denied] if isinstance(denied, list) else [])
        self._launches = _watch_launches() if found["launches"] else None

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
