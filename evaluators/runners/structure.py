"""Takes nests of tensors and constants apart, and makes them anew. Stdlib only: runners import it.

A nest is the arguments or the result of a task's function: tuples, lists and dicts, in any depth, of tensors, numbers,
booleans, texts and None. Its form is plain data, the JSON of `messages.calls.Structure`. A tensor on torch's `meta`
device is room for an output, made in each call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

Form: TypeAlias = dict[str, object]

TENSOR: Form = {"type": "tensor"}
Room: TypeAlias = tuple[Sequence[int], str]
"""Shape and dtype (torch's name without the prefix) of a tensor that is made in each call, uninitialised."""
_MAX_DEPTH = 16
_MAX_INTEGER = 1 << 63


class StructureError(ValueError):
    """A nest holds what cannot be part of one; the text says what, and where."""


def flatten(
    value: object,
    is_tensor: Callable[[object], bool],
    where: str = "",
    *,
    room_of: Callable[[object], Room | None] = lambda _: None,
) -> tuple[Form, list[object]]:
    """Return a nest's form, and its tensors in order.

    `where` names the nest in messages; `room_of` returns the output that a value stands for.

    Raises:
        StructureError: it holds something else than containers, tensors and constants, or is too deep.
    """
    tensors: list[object] = []
    return _form(value, where, 0, tensors, is_tensor, room_of), tensors


def rebuild(
    form: Mapping[str, object],
    tensors: Iterable[object],
    make_room: Callable[[Sequence[int], str], object] | None = None,
) -> object:
    """Return the nest of a form with these tensors; `make_room` makes an uninitialised tensor of a shape and dtype."""
    return _rebuilt(form, iter(tensors), make_room)


def has_room(form: Mapping[str, object]) -> bool:
    """Return True if a nest has room for outputs."""
    return form["type"] == "room" or any(map(has_room, _items(form)))


def paths(form: Mapping[str, object], name: str = "") -> Iterator[str]:
    """Yield a name for each tensor: keys and positions, with dots; below a name, if one is given."""
    match form["type"]:
        case "tensor":
            yield name
        case "constant" | "room":
            return
        case _:
            for key, item in _entries(form):
                yield from paths(item, f"{name}.{key}" if name else key)


def numbers_in(form: Mapping[str, object]) -> list[tuple[int, bool | int | float]]:
    """Return the numbers of a nest, each with how many tensors and numbers stand before it."""
    found: list[tuple[int, bool | int | float]] = []
    for place, leaf in enumerate(_passed(form)):
        if leaf["type"] == "constant" and isinstance(value := leaf["value"], int | float):
            found.append((place, value))
    return found


def with_numbers(form: Mapping[str, object], tensors: Sequence[object]) -> list[object]:
    """Return what a function is given that takes no nests: the nest's tensors and numbers, then further tensors."""
    given = list(tensors)
    for place, value in numbers_in(form):
        given.insert(place, value)
    return given


def same_form(left: Mapping[str, object], right: Mapping[str, object]) -> bool:
    """Return True if two nests look alike; a list is as good as a tuple."""
    kinds = ["list" if form["type"] == "tuple" else form["type"] for form in (left, right)]
    if kinds[0] != kinds[1]:
        return False
    if kinds[0] == "constant":
        return left["value"] == right["value"] and type(left["value"]) is type(right["value"])
    if kinds[0] in {"tensor", "room"}:
        return True
    ours, theirs = list(_entries(left)), list(_entries(right))
    return [key for key, _ in ours] == [key for key, _ in theirs] and all(
        same_form(one, other) for (_, one), (_, other) in zip(ours, theirs, strict=True)
    )


def describe(form: Mapping[str, object]) -> str:
    """Say what a nest looks like, as Python would write it."""
    match form["type"]:
        case "tensor":
            return "tensor"
        case "constant":
            return repr(form["value"])
        case "room":
            return f"room for {form['dtype']} {tuple(form['shape'])}"  # type: ignore[arg-type]
        case "dict":
            return "{" + ", ".join(f"{key!r}: {describe(item)}" for key, item in _entries(form)) + "}"
        case kind:
            inner = ", ".join(describe(item) for _, item in _entries(form))
            return f"[{inner}]" if kind == "list" else f"({inner}{',' if len(_items(form)) == 1 else ''})"


# No closure here refers to itself: the cycle would keep tensors on a GPU until the next garbage collection.


def _form(
    value: object,
    where: str,
    depth: int,
    tensors: list[object],
    is_tensor: Callable[[object], bool],
    room_of: Callable[[object], Room | None],
) -> Form:
    if (room := room_of(value)) is not None:
        return {"type": "room", "shape": list(room[0]), "dtype": room[1]}
    if is_tensor(value):
        tensors.append(value)
        return TENSOR
    if value is None or type(value) in {bool, int, float, str}:
        _refuse_constant(value, where)
        return {"type": "constant", "value": value}
    return _container(
        value, depth, where, lambda item, place: _form(item, place, depth + 1, tensors, is_tensor, room_of)
    )


def _rebuilt(
    form: Mapping[str, object],
    tensors: Iterator[object],
    make_room: Callable[[Sequence[int], str], object] | None,
) -> object:
    match form["type"]:
        case "room" if make_room is not None:
            shape = form["shape"]
            return make_room(shape if isinstance(shape, list | tuple) else (), str(form["dtype"]))
        case "tensor":
            return next(tensors)
        case "constant":
            return form["value"]
        case "list":
            return [_rebuilt(item, tensors, make_room) for item in _items(form)]
        case "tuple":
            return tuple(_rebuilt(item, tensors, make_room) for item in _items(form))
        case _:
            return {key: _rebuilt(item, tensors, make_room) for key, item in _entries(form)}


def _container(value: object, depth: int, where: str, form_of: Callable[[object, str], Form]) -> Form:
    if depth >= _MAX_DEPTH:
        raise StructureError(f"{where or 'it'} is nested deeper than {_MAX_DEPTH}")

    def inner(item: object, key: object) -> Form:
        return form_of(item, f"{where}[{key!r}]")

    if isinstance(value, dict):
        if other := next((key for key in value if not isinstance(key, str)), None):
            raise StructureError(f"{where or 'it'} has the key {other!r}; keys must be texts")
        return {"type": "dict", "keys": list(value), "items": [inner(item, key) for key, item in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {"type": kind, "items": [inner(item, index) for index, item in enumerate(value)]}
    raise StructureError(
        f"{where or 'it'} is {type(value).__name__}; it must be a tensor, a number, a text, None, or a tuple, list or "
        "dict of them"
    )


def _refuse_constant(value: object, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise StructureError(f"{where or 'it'} is {value}; numbers that are no tensors must be finite")
    if type(value) is int and not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise StructureError(f"{where or 'it'} is {value}; integers must fit in 64 bits")


def _passed(form: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    match form["type"]:
        case "tensor":
            yield form
        case "constant":
            if isinstance(form["value"], int | float):
                yield form
        case "room":
            return
        case _:
            for item in _items(form):
                yield from _passed(item)


def _items(form: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
    items = form.get("items")
    return items if isinstance(items, list | tuple) else ()


def _entries(form: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    keys = form.get("keys")
    named = keys if isinstance(keys, list | tuple) else range(len(_items(form)))
    for key, item in zip(named, _items(form), strict=True):
        yield str(key), item
