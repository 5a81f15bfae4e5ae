"""Products of tensors as contractions: matmul and einsum, by the names of their dimensions."""

from __future__ import annotations

import string
from collections.abc import Sequence

from actors.llm.offline.graph import NoRuleError
from actors.llm.offline.stages.index import whole
from actors.llm.offline.stages.tracing import StagedTracer, View
from actors.llm.offline.tracing import Value

Names = Sequence[str]


def contracted(tracer: StagedTracer, left: View, right: View, terms: tuple[Names, Names, Names]) -> View:
    """Return the sum over the dimensions that `terms[2]` does not name; an element-wise product if there are none."""
    if set(terms[0]) | set(terms[1]) <= set(terms[2]):
        return tracer.binary("mul", _arranged(tracer, left, terms[0], terms[2]), _arranged(tracer, right, *terms[1:]))
    return tracer.contract(left, right, terms)


def product(tracer: StagedTracer, left_value: Value, right_value: Value) -> View:
    """Return `torch.matmul` of two tensors."""
    left, right = tracer.tensor(left_value), tracer.tensor(right_value)
    if not left.shape or not right.shape:
        raise NoRuleError("a matrix product with a number")
    rank = max(len(left.shape), len(right.shape), 2)
    batch = [f"batch{dim}" for dim in range(rank - 2)]
    ones = [[*batch, "m", "k"][-len(left.shape) :], [*batch, "k", "n"][-len(right.shape) :]]
    if len(left.shape) == 1:
        ones[0] = ["k"]
    if len(right.shape) == 1:
        ones[1] = ["k"]
    out = [*batch, *(["m"] if len(left.shape) > 1 else []), *(["n"] if len(right.shape) > 1 else [])]
    return contracted(tracer, left, right, (ones[0], ones[1], out))


def einsum(tracer: StagedTracer, equation: str, operands: Sequence[View]) -> View:
    """Return `torch.einsum`; more than two operands from left to right.

    Raises:
        NoRuleError: a dimension stands twice in an operand, or the equation does not fit.
    """
    before, arrow, after = equation.replace(" ", "").partition("->")
    inputs = before.split(",")
    if len(inputs) != len(operands):
        raise NoRuleError(f"the equation {equation!r} for {len(operands)} operands")
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    inputs = [_spelled(names, len(view.shape), spare) for names, view in zip(inputs, operands, strict=True)]
    if arrow:
        wide = max((len(view.shape) - len(names.replace("...", "")) for names, view in zip(before.split(","), operands,
                   strict=True) if "..." in names), default=0)  # fmt: skip
        out = after.replace("...", "".join(reversed(spare[:wide])))
    else:
        letters = "".join(inputs)
        out = "".join(letter for letter in sorted(set(letters)) if letters.count(letter) == 1)
    view, names = _reduced(tracer, operands[0], inputs[0], inputs[1:], out)
    for position, (other, others) in enumerate(zip(operands[1:], inputs[1:], strict=True), start=2):
        later = set("".join(inputs[position:])) | set(out)
        shared = [*dict.fromkeys([*names, *others])]
        kept = list(out) if position == len(inputs) else [name for name in shared if name in later]
        view, names = contracted(tracer, view, other, (names, list(others), kept)), kept
    return _arranged(tracer, view, names, list(out))


def _reduced(tracer: StagedTracer, view: View, names: str, others: Sequence[str], out: str) -> tuple[View, list[str]]:
    """Sum a first operand over what neither another one nor the result names."""
    if len(set(names)) != len(names):
        raise NoRuleError(f"an einsum with the diagonal {names!r}")
    needed = set("".join(others)) | set(out)
    alone = tuple(dim for dim, name in enumerate(names) if name not in needed)
    if not alone:
        return view, list(names)
    return tracer.reduce("sum", view, alone, keepdim=False), [name for name in names if name in needed]


def _spelled(names: str, rank: int, spare: list[str]) -> str:
    """Return the names of an operand's dimensions with letters for its ellipsis."""
    count = rank - len(names.replace("...", ""))
    return names.replace("...", "".join(reversed(spare[:count])))


def _arranged(tracer: StagedTracer, view: View, names: Names, order: Names) -> View:
    """Return a view with its dimensions in another order; those that it does not have are of size 1."""
    if list(names) == list(order):
        return view
    shape = tuple(view.shape[list(names).index(name)] if name in names else 1 for name in order)
    places = [whole(list(order).index(name), size) for name, size in zip(names, view.shape, strict=True)]
    return tracer.viewed(view, shape, places)
