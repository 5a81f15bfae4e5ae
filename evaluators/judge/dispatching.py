"""What sees the operators that code of a problem calls, without the compiler that torch brings along for it."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Dispatching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode whose `__torch_dispatch__` is not kept from `torch.compile`: that imports the whole of it, for 2 s."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
