"""What a generated GPUMode problem needs beside the competition's own `reference.py`.

The text of this file travels with such a task; only a judge imports it.

- `drawn(seed)`: another seed of the same size, from the judge's own
- `with_rooms(data, places)`: room for outputs instead of uninitialised tensors
- `as_handed_out(make, case, texts)`: a case's data in the dtypes that the competition's harness hands out
- `like_rooms(outputs, rooms)`: outputs in the dtypes of the room for them
- `complaint_of(said)`: what a problem's checker says, as a text that is empty where all is right
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

_LEAST_SEED = 1 << 16
_dtypes: dict[str, list[torch.dtype]] = {}


def drawn(seed: int) -> int:
    """Return a seed that the judge's generator draws, of the size of the case's own.

    Some problems add the seed to their values, so it may not be any number.
    """
    return int(torch.randint(1, max(_LEAST_SEED, 2 * seed), (), device="cpu"))


def with_rooms(data: Sequence[Any], places: Sequence[int]) -> tuple[Any, ...]:
    """Return a case's tuple with room for outputs at these places."""
    return tuple(value.to("meta") if place in places else value for place, value in enumerate(data))


def like_rooms(outputs: Any, rooms: Sequence[torch.Tensor]) -> Any:
    """Return outputs in the dtypes of the room that there is for them.

    References compute wider, and the competition's checkers let any dtype through. Shapes they do not: an output has
    the reference's, also where the room has another.
    """
    found = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    if len(found) != len(rooms):
        return outputs
    fitted = tuple(value.to(room.dtype) for value, room in zip(found, rooms, strict=True))
    return fitted[0] if isinstance(outputs, torch.Tensor) else fitted


def complaint_of(said: Any) -> str:
    """Return what a checker has to say: of `(good, text)`, of a text, or of a list of texts."""
    if isinstance(said, tuple) and len(said) == len(("good", "text")) and isinstance(said[0], bool):
        return "" if said[0] else str(said[1]) or "the problem's checker refuses it"
    if isinstance(said, list):
        return "; ".join(map(str, said))
    return str(said or "")


def as_handed_out(make: Callable[..., Any], case: Mapping[str, Any], texts: Sequence[str]) -> Any:
    """Return a case's data, each tensor in the dtype that the competition's harness would hand out.

    That harness turns booleans into texts, and may so give tensors of another dtype than the problem means to. Programs
    are written for what they are given: values are the problem's, dtypes the harness's.

    Args:
        make: the problem's generator.
        case: its arguments.
        texts: those that the harness turns into texts.
    """
    data = make(**case)
    if all(case[name] is not False for name in texts):
        return data
    key = json.dumps({name: value for name, value in case.items() if name != "seed"}, sort_keys=True)
    if key not in _dtypes:
        _dtypes[key] = [
            tensor.dtype for tensor in _tensors(make(**{**case, **{name: str(case[name]) for name in texts}}))
        ]
    return _in_dtypes(data, iter(_dtypes[key]))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in inner for tensor in _tensors(item)]


def _in_dtypes(value: Any, dtypes: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(next(dtypes))
    if isinstance(value, dict):
        return {key: _in_dtypes(item, dtypes) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_in_dtypes(item, dtypes) for item in value)
    return value
