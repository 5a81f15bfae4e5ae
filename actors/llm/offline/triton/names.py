"""Tensors by the names that they have in the source: those of the contract, and names of its own for values."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actors.llm.offline.graph import Access, NoRuleError, TensorInfo


class Names:
    """What is called how. An output may be called like an input: what is read and what is written are apart."""

    def __init__(self, tensors: Sequence[TensorInfo], arguments: Sequence[str], *, on_gpu: bool = False) -> None:
        """Give the names.

        Args:
            tensors: the task's.
            arguments: of the contract.
            on_gpu: whether what is written runs on a GPU, and not in Triton's interpreter.

        Raises:
            NoRuleError: the contract has another number of arguments than the task has tensors.
        """
        given = [tensor for tensor in tensors if tensor.role in {"input", "parameter"}]
        given += [tensor for tensor in tensors if tensor.role == "output"]
        if len(given) != len(arguments):
            raise NoRuleError(f"a contract of {len(arguments)} arguments for {len(given)} tensors")
        self.arguments = tuple(arguments)
        self.on_gpu = on_gpu
        self.sources: dict[str, TensorInfo] = {}
        self.targets: dict[str, TensorInfo] = {}
        for tensor, name in zip(given, arguments, strict=True):
            places = self.targets if tensor.role == "output" else self.sources
            places[tensor.name] = msgspec.structs.replace(tensor, name=name)
        for position, tensor in enumerate(tensor for tensor in tensors if tensor.role == "value"):
            named = msgspec.structs.replace(tensor, name=self._fresh(f"value_{position}"))
            self.sources[tensor.name] = self.targets[tensor.name] = named
        self.workspaces: list[TensorInfo] = []
        self.real = "float64" if any(tensor.dtype == "float64" for tensor in tensors) else "float32"

    def workspace(self, wanted: str, shape: tuple[int, ...]) -> str:
        """Add a workspace of the computing type, and return its name."""
        tensor = TensorInfo(name=self._fresh(wanted), role="value", shape=shape, dtype=self.real)
        self.workspaces.append(tensor)
        return tensor.name

    def read(self, access: Access) -> Access:
        """Return an access by the name of what is read."""
        return msgspec.structs.replace(access, name=self.sources[access.name].name) if access.name else access

    def written(self, access: Access) -> Access:
        """Return an access by the name of what is written."""
        return msgspec.structs.replace(access, name=self.targets[access.name].name)

    def _fresh(self, wanted: str) -> str:
        """Return a name that no argument has."""
        while wanted in self.arguments:
            wanted += "_"
        return wanted

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """All tensors, by their names in the source."""
        everything = (*self.sources.values(), *self.targets.values(), *self.workspaces)
        return {tensor.name: tensor for tensor in everything}
