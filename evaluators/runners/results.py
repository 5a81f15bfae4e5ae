"""Finds out whether a module returns memory that an earlier result lies in, without keeping any result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_SAMPLES = 256
# Bound before any candidate is there.
_storage, _address, _flat = torch.Tensor.untyped_storage, torch.Tensor.data_ptr, torch.Tensor.view
_listed = torch.Tensor.tolist


class Results:
    """Where earlier results lie, as long as that memory exists."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        """Begin with no result.

        Args:
            given: tensors that calls are given. A result may lie in those: their contents are the caller's.
        """
        self._given = {_storage(tensor).data_ptr() for tensor in given}
        self._known: dict[int, _Known] = {}

    def see(self, returned: Sequence[torch.Tensor]) -> bool:
        """Remember a call's results. Returns whether one overwrote the result of an earlier call.

        Memory that was freed and allocated again is no matter, nor are results with the same contents each time.
        """
        seen: dict[int, _Known] = {}
        for value in returned:
            storage = _storage(value)
            if value.numel() and storage.data_ptr() not in self._given:
                seen[_address(value)] = _Known(storage, _sampled(value))
        known = {at: before for at, before in self._known.items() if before.exists}
        self._known = known | seen
        return any(at in known and known[at].sample != now.sample for at, now in seen.items())


class _Known:
    """A result, without keeping it alive."""

    def __init__(self, storage: torch.UntypedStorage, sample: list[int]) -> None:
        self._storage = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.sample = sample

    @property
    def exists(self) -> bool:
        return not self._storage.expired()  # type: ignore[no-untyped-call]


def _sampled(value: torch.Tensor) -> list[int]:
    flat = _flat(_flat(value, -1), torch.uint8)
    return _listed(flat[:: max(1, flat.numel() // _SAMPLES)])
