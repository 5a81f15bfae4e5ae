"""Where and under which terms candidates are called on one workload."""

from __future__ import annotations

import msgspec

from evaluators.judge.memory import Buffers
from evaluators.judge.terms import NO_TERMS, Terms


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate's side is to know of a workload."""

    buffers: Buffers
    terms: Terms = NO_TERMS
    number: int = 0
    """Of the workload, among those whose calls a runner can be asked for."""

    @property
    def held_bytes(self) -> int:
        """Return how much a module's instance for this workload holds: its parameters."""
        given = self.buffers.inputs.tensors
        count = len(self.terms.module.state) if self.terms.module is not None else 0
        return sum(tensor.nbytes for tensor in given[len(given) - count :])
