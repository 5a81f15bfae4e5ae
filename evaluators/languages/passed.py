"""What a function that takes no nests is given, in order: tensors, and the numbers that stand among them."""

from __future__ import annotations

from typing import TypeAlias

from messages.calls import CallForm, Number
from messages.tasks import TensorSpec

Passed: TypeAlias = TensorSpec | Number


def passed(tensors: tuple[TensorSpec, ...], call: CallForm | None) -> tuple[Passed, ...]:
    """Return inputs with numbers in their places, then the state, then outputs."""
    given: list[Passed] = list(tensors)
    for number in call.numbers if call is not None else ():
        given.insert(number.place, number)
    return tuple(given)


def dtype_of(number: Number) -> str:
    """Return what kind of number it is, as torch would call it."""
    if isinstance(number.value, bool):
        return "bool"
    return "int64" if isinstance(number.value, int) else "float64"
