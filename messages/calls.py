"""Call forms: how a task's tensors and constants form the arguments and results of a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from messages.base import Message

Calling: TypeAlias = Literal["module", "function", "destination"]
"""How a `python` candidate is called: as the class `ModelNew`; as a function that takes the inputs and returns the
outputs; as one that takes inputs and then outputs, writes to the outputs and returns None."""

Constant: TypeAlias = bool | int | float | str | None


class TensorPlace(Message, frozen=True, kw_only=True, tag="tensor"):
    """A tensor: the next one, in order."""


class ConstantPlace(Message, frozen=True, kw_only=True, tag="constant"):
    """The same value in every call."""

    value: Constant
    """Finite, if it is a number."""


class RoomPlace(Message, frozen=True, kw_only=True, tag="room"):
    """A tensor that a `python` candidate may write to; allocated for every call, uninitialised."""

    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix."""


class ListOf(Message, frozen=True, kw_only=True, tag="list"):
    """A list."""

    items: tuple[Structure, ...]


class TupleOf(Message, frozen=True, kw_only=True, tag="tuple"):
    """A tuple."""

    items: tuple[Structure, ...]


class DictOf(Message, frozen=True, kw_only=True, tag="dict"):
    """A dict, in its own order."""

    keys: tuple[str, ...]
    items: tuple[Structure, ...]
    """Items, as many as keys."""


Structure: TypeAlias = TensorPlace | ConstantPlace | RoomPlace | ListOf | TupleOf | DictOf
"""Form of nested tensors and constants; `evaluators/runners/structure.py` takes them apart and rebuilds them."""


class CallForm(Message, frozen=True, kw_only=True):
    """Arguments and results of a call of one workload, if they are more than a sequence of tensors."""

    calling: Calling = "module"
    arguments: TupleOf
    """Positional arguments; their tensors are the workload's inputs, in order."""
    outputs: Structure
    """The result; its tensors are the workload's outputs, in order."""
    names: tuple[str, ...] = ()
    """The reference's names of its arguments; all of them, or none."""

    @property
    def constants(self) -> tuple[tuple[int, bool | int | float], ...]:
        """Numbers among the arguments, each with the count of tensors and numbers before it."""
        return tuple((number.place, number.value) for number in self.numbers)

    @property
    def numbers(self) -> tuple[Number, ...]:
        """Numbers among the arguments, in order."""
        found: list[Number] = []
        place = 0
        for at, argument in enumerate(self.arguments.items):
            for name, leaf in _named_leaves(argument, self.names[at] if at < len(self.names) else f"input{at}"):
                if isinstance(leaf, ConstantPlace) and isinstance(leaf.value, int | float):
                    found.append(Number(name=name, place=place, value=leaf.value))
                    place += 1
                place += isinstance(leaf, TensorPlace)
        return tuple(found)


class Number(Message, frozen=True, kw_only=True):
    """A number among the arguments of a call."""

    name: str
    """Name, formed like a tensor's in its place: `eps`, `config.eps`."""
    place: int
    """Number of tensors and numbers before it."""
    value: bool | int | float


def leaves_of(structure: Structure) -> tuple[TensorPlace | ConstantPlace | RoomPlace, ...]:
    """Return the tensors, constants and rooms of a nest, in order."""
    match structure:
        case TensorPlace() | ConstantPlace() | RoomPlace():
            return (structure,)
        case ListOf(items=items) | TupleOf(items=items) | DictOf(items=items):
            return tuple(leaf for item in items for leaf in leaves_of(item))


def _named_leaves(structure: Structure, name: str) -> Iterator[tuple[str, Structure]]:
    match structure:
        case TensorPlace() | ConstantPlace() | RoomPlace():
            yield name, structure
        case ListOf(items=items) | TupleOf(items=items):
            for at, item in enumerate(items):
                yield from _named_leaves(item, f"{name}.{at}")
        case DictOf(keys=keys, items=items):
            for key, item in zip(keys, items, strict=True):
                yield from _named_leaves(item, f"{name}.{key}")
