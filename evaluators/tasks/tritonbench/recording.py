"""Stands in for a gold's functions while a test runs, and keeps what they are called with: plain data and tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from evaluators.tasks.tritonbench.replay import make_calls

Call: TypeAlias = dict[str, Any]
"""`function`, `arguments`, `options`, `writes`, `unwritten`, `seed`: as `replay.make_calls` takes them."""

_VIEWED = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_UNINITIALISED = (
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
)


class EnoughError(BaseException):
    """All calls are recorded: the test need not go on. No Exception, so that the test does not catch it."""


class Recorded:
    """One call of the first run."""

    def __init__(self) -> None:
        self.is_used = False
        self.writes: tuple[int | str, ...] = ()
        self.unwritten: list[list[object]] = []
        """Number of an output among those of the call, and which of its elements the gold does not write."""
        self.written: list[object] = []
        self.returned: object = None
        self.raised: Exception | None = None


class Run:
    """One run of a test."""

    def __init__(self, recorded: list[Recorded], seed: int | None, *, is_first: bool) -> None:
        self.calls: list[Call] = []
        self._recorded, self._seed, self._executes = recorded, seed, is_first
        self._count = 0
        if is_first:
            recorded.clear()

    def called(
        self, name: str, function: Callable[..., object], given: tuple[object, ...], named: dict[str, object]
    ) -> object:
        """Record a call, and answer it."""
        place, self._count = self._count, self._count + 1
        call = _encoded_call(name, given, named, self._seed)
        if self._executes:
            self._recorded.append(self._executed(name, function, given, named, call))
        elif place >= len(self._recorded):
            raise EnoughError
        known = self._recorded[place]
        if call is not None and known.is_used:
            self.calls.append({**call, "writes": known.writes, "unwritten": copied(known.unwritten)})
        if known.raised is not None:
            raise known.raised
        if not self._executes:
            self._lay(known, given, named)
            if place == len(self._recorded) - 1:
                raise EnoughError
            return copied(known.returned)
        return known.returned

    def _executed(
        self,
        name: str,
        function: Callable[..., object],
        given: tuple[object, ...],
        named: dict[str, object],
        call: Call | None,
    ) -> Recorded:
        known = Recorded()
        places: dict[int | str, object] = dict(enumerate(given))
        places.update(named)
        before = {place: copied(value) for place, value in places.items()}
        try:
            known.returned = function(*given, **named)
        except Exception as error:  # noqa: BLE001 - tests try what is refused
            known.raised = error
            return known
        known.writes = tuple(place for place, value in places.items() if not same_bytes(value, before[place]))
        known.written = [copied(places[place]) for place in known.writes]
        outputs = list(tensors_in([known.returned, known.written]))
        known.is_used = call is not None and bool(outputs)
        if call is not None and known.is_used and self._seed is None:
            with Filled(1):
                others = make_calls([{**call, "writes": known.writes}], {name: function})  # type: ignore[no-untyped-call]
            known.unwritten = _differences(outputs, others)
        return known

    def _lay(self, known: Recorded, given: tuple[object, ...], named: dict[str, object]) -> None:
        """Have the arguments hold what the gold wrote to them then, as far as they still fit."""
        for place, then in zip(known.writes, known.written, strict=True):
            now = named.get(place) if isinstance(place, str) else given[place]
            for target, value in zip(tensors_in(now), tensors_in(then), strict=False):
                if target.shape == value.shape:
                    with torch.no_grad():
                        target.copy_(value)


class Recorder:
    """Stands for one of the gold's functions."""

    def __init__(self, function: object, called: Callable[..., object]) -> None:
        self._function, self._called = function, called

    def __call__(self, *given: object, **named: object) -> object:
        """Be called in its place."""
        return self._called(*given, **named)

    def __getattr__(self, name: str) -> object:
        return getattr(self._function, name)


class Holder:
    """Stands for a class of the gold of which one function is recorded."""

    def __init__(self, holder: object, name: str, recorder: Recorder) -> None:
        self._holder, self._name, self._recorder = holder, name, recorder

    def __getattr__(self, name: str) -> object:
        return self._recorder if name == self._name else getattr(self._holder, name)


class Filled(TorchFunctionMode):
    """Has memory that is left uninitialised hold a value: what it holds must not depend on chance."""

    def __init__(self, value: int) -> None:
        super().__init__()
        self._value = value

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        made = function(*arguments, **(options or {}))
        return made.fill_(self._value) if function in _UNINITIALISED else made


def _encoded_call(name: str, given: tuple[object, ...], named: dict[str, object], seed: int | None) -> Call | None:
    """Return a call as plain data; None if something in it has no such form."""
    try:
        arguments = tuple(_encoded(value) for value in given)
        options = {key: _encoded(value) for key, value in named.items()}
    except TypeError:
        return None
    return {"function": name, "arguments": arguments, "options": options, "writes": (), "unwritten": [], "seed": seed}


def _encoded(value: object) -> object:
    """Return a value as `replay.py` understands it.

    Raises:
        TypeError: it has no such form.
    """
    match value:
        case torch.Tensor():
            return _encoded_tensor(value.detach())
        case torch.dtype():
            return {"as": "dtype", "name": str(value).removeprefix("torch.")}
        case torch.device():
            return {"as": "device"}
        case float() if not math.isfinite(value):
            return {"as": "float", "name": str(value)}
        case bool() | int() | float() | str() | None:
            return value
        case _:
            return _encoded_container(value)


def _encoded_container(value: object) -> object:
    match value:
        case list():
            return [_encoded(item) for item in value]
        case tuple():
            return tuple(_encoded(item) for item in value)
        case dict() if "as" not in value and all(isinstance(key, str) for key in value):
            return {key: _encoded(item) for key, item in value.items()}
        case _:
            raise TypeError(f"{type(value).__name__} is no plain data")


def _encoded_tensor(tensor: torch.Tensor) -> object:
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.numel() == 0:
        return {"as": "empty", "shape": tuple(tensor.shape), "name": name}
    if tensor.layout != torch.strided:
        raise TypeError("a tensor that is not dense")
    if tensor.is_complex():
        return {"as": "complex", "parts": torch.view_as_real(tensor.resolve_conj()).clone()}
    if tensor.dtype in _VIEWED:
        return {"as": "bytes", "bytes": tensor.contiguous().view(torch.uint8).clone(), "name": name}
    return tensor.clone()


def copied(value: object) -> object:
    """Return a nest with tensors of its own; other things are shared."""
    match value:
        case torch.Tensor():
            return value.detach().clone()
        case list():
            return [copied(item) for item in value]
        case tuple():
            return tuple(copied(item) for item in value)
        case dict():
            return {key: copied(item) for key, item in value.items()}
        case _:
            return value


def copied_calls(calls: Sequence[Call]) -> list[Call]:
    """Return calls with tensors of their own."""
    return [{key: copied(value) for key, value in call.items()} for call in calls]


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors of a nest that hold something, and its numbers as tensors."""
    match value:
        case torch.Tensor():
            if value.numel():
                yield value
        case list() | tuple():
            for item in value:
                yield from tensors_in(item)
        case dict():
            for item in value.values():
                yield from tensors_in(item)
        case bool() | int() | float():
            yield torch.tensor(value)
        case _:
            pass


def same_bytes(now: object, then: object) -> bool:
    """Say whether an argument's tensors hold the same bytes."""
    pairs = zip(tensors_in(now), tensors_in(then), strict=False)
    return all(_bytes_of(one).equal(_bytes_of(other)) for one, other in pairs)


def _differences(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> list[list[object]]:
    """Return where two runs differ by more than the order of sums makes them: number of the output, and a mask."""
    found: list[list[object]] = []
    for place, (one, other) in enumerate(zip(ones, others, strict=False)):
        if one.shape == other.shape and one.dtype == other.dtype:
            mask = ~torch.isclose(one.detach().to(other.device), other, rtol=1e-2, atol=1e-4, equal_nan=True)
            if bool(mask.any()):
                found.append([place, mask])
    return found


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().contiguous().view(-1).view(torch.uint8)
