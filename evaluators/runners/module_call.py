"""A candidate that is a torch module, in its runner: made, given the reference's state, called, its outputs taken.

The calling contract is that of `evaluators/languages/python/contract.py`.
"""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from evaluators.runners.base import (
    BAD_OUTPUT,
    GIVE,
    HOLD,
    LOADED,
    NO_ENTRY_POINT,
    NOT_LOADED,
    REUSED,
    Called,
    keep_freed_memory,
)
from evaluators.runners.denial import Rules
from evaluators.runners.inline import offer_built
from evaluators.runners.program import NoEntryPointError, import_from, tell_raised
from evaluators.runners.structure import StructureError, describe, flatten, paths, rebuild, same_form
from evaluators.runners.warm import DTYPES, Order, Workloads, begin_on_cpu, load_function, tell

# Bound before any candidate is there: what it does to tensors, or to torch, is not asked how to copy or look.
_copy, _clone = torch.Tensor.copy_, torch.Tensor.clone
_dense = torch.Tensor.contiguous
_address = torch.Tensor.data_ptr
_sizes_of, _strides_of = torch.Tensor.size, torch.Tensor.stride
_storage, _flat, _listed = torch.Tensor.untyped_storage, torch.Tensor.view, torch.Tensor.tolist
_SAMPLES = 256
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values()}
_layout_of: Callable[[torch.Tensor], torch.layout] = vars(torch._C.TensorBase)["layout"].__get__  # noqa: SLF001


class BadOutputError(Exception):
    """A module returned other things than the tensors of the reference."""


def serve_candidate(order: Order) -> None:
    """Run one module on the CPU, to the end of the process."""
    workloads, spec = begin_on_cpu(order), order.spec
    torch.set_num_threads(spec["threads"])
    keep_freed_memory()
    rules = Rules(spec["terms"], order.denial)
    if is_destination(spec):
        order.serve(lambda _: load_function(spec, workloads, rules, nested))
    loader = Loader(spec, workloads, rules)
    order.serve(loader.load, others={HOLD: loader.hold, GIVE: loader.give, REUSED: loader.reused})


class _Part:
    """One workload's instance: arguments, inputs and state, and places of its outputs."""

    def __init__(
        self,
        placed: Sequence[Mapping[str, Any]],
        arrangements: Sequence[Sequence[torch.Tensor]],
        instance: Mapping[str, Any],
        call: Mapping[str, Any] | None,
    ) -> None:
        self._call = call
        made = instance["made"]
        self.names: list[str] = instance["state"]
        self.arguments: str = made["arguments"]
        self.parameters: int = made["parameters"]
        self.trains: bool = made["trains"]
        given = sum(tensor["area"] == "inputs" for tensor in placed)
        count = given - len(self.names)
        self.inputs = [list(tensors[:count]) for tensors in arrangements]
        self.outputs = [list(tensors[given:]) for tensors in arrangements]
        self._state = arrangements[0][count:given]

    @property
    def is_function(self) -> bool:
        """True if the candidate is a function: it is not made, it is called."""
        return self._call is not None and self._call["calling"] == "function"

    def given(self, arrangement: int) -> Sequence[object]:
        """Return the arguments of a call, nests made anew: a candidate may have changed the former ones."""
        inputs = self.inputs[arrangement]
        return inputs if self._call is None else _nest(self._call["arguments"], inputs)

    def dense(self, result: object) -> Sequence[object]:
        """Return what a call returned as tensors, dense as the reference's are; see `_made_dense`."""
        if self._call is None or type(result) is torch.Tensor:
            return _made_dense(result)
        try:
            form, tensors = flatten(result, lambda value: type(value) is torch.Tensor, "it")
        except StructureError as error:
            raise BadOutputError(f"the returned value cannot be an output: {error}") from error
        if not same_form(form, self._call["outputs"]):
            wanted = describe(self._call["outputs"])
            raise BadOutputError(f"it returns {describe(form)[:300]}, the reference {wanted[:300]}")
        return _made_dense(tensors)

    def state(self) -> dict[str, torch.Tensor]:
        """Return a copy of the state that lies in the memory now; other workloads' will lie there later."""
        return {name: _clone(tensor) for name, tensor in zip(self.names, self._state, strict=True)}


class Loader:
    """The instances of a candidate's class: one for each workload, made when it is asked for, all in this process."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        workloads: Workloads,
        rules: Rules,
        *,
        device: str = "cpu",
        delivers: bool = True,
    ) -> None:
        """Import nothing yet; `delivers`: a call hands over its outputs itself, else `hand_over` does."""
        self._device, self._delivers, self._rules = device, delivers, rules
        self._program, self._name = str(spec["product"]), str(spec["entry_point"])
        self._folder = os.path.dirname(self._program)  # noqa: PTH120 - it is compared with file names of frames
        parts = zip(spec["workloads"], workloads, spec["instances"], spec["calls"], strict=True)
        self._parts = [_Part(*each) for each in parts]
        self._class: Callable[..., object] | None = None
        self._calls: dict[int, Sequence[Callable[[], int]]] = {}
        self._result: Sequence[object] | None = None
        """Result of the last call; not looked at."""
        self._places: list[torch.Tensor] = []
        """Where that is to be handed over."""
        self._returned: list[torch.Tensor] = []
        self._kept: list[torch.Tensor] = []
        self._results = Results(tensor for arrangements in workloads for row in arrangements for tensor in row)

    def load(self, number: int) -> tuple[int, Called]:
        """Make the instance of a workload with the state in the memory. Returns a status and all calls."""
        part = self._parts[number]
        try:
            model = self._model(part)
        except NoEntryPointError as error:
            tell(str(error))
            return self._rules.of_load(NO_ENTRY_POINT), self._calls
        except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
            tell(tell_raised(error, self._folder))
            return self._rules.of_load(NOT_LOADED), self._calls
        arrangements = range(len(part.inputs))
        self._calls[number] = [self._rules.of_call(partial(self._call, model, part, each)) for each in arrangements]
        return self._rules.of_load(LOADED), self._calls

    def _call(self, model: Callable[..., object], part: _Part, arrangement: int) -> int:
        try:
            with torch.no_grad():
                result = part.dense(model(*part.given(arrangement)))
            self._result, self._places = result, part.outputs[arrangement]
            return self.hand_over() if self._delivers else 0
        except BadOutputError as error:
            tell(str(error))
            return BAD_OUTPUT
        except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
            tell(tell_raised(error, self._folder))
            return 1

    def _model(self, part: _Part) -> Callable[..., object]:
        if self._class is None:
            offer_built(self._folder)
            self._class = import_from(self._program, self._name)
        if part.is_function:
            return self._class
        arguments: tuple[object, ...] = ast.literal_eval(part.arguments)
        with torch.device(self._device):
            model = self._class(*arguments)
        if not isinstance(model, torch.nn.Module):
            raise NoEntryPointError(f"{self._name} makes {type(model).__name__}, which is no torch.nn.Module")
        model = model.to(self._device)
        model.train(part.trains)
        lay_state(model, part.state(), part.parameters)
        return model

    def hand_over(self) -> int:
        """Check the last call's outputs and copy them to the judge's memory. Returns a status."""
        if self._result is None:
            return 0
        try:
            self._returned = _outputs_of(self._result, self._places)
        except BadOutputError as error:
            tell(str(error))
            return BAD_OUTPUT
        for value, place in zip(self._returned, self._places, strict=True):
            _copy(place, value)
        return 0

    def reused(self) -> int:
        """Return 1 if the last call overwrote the result of an earlier one."""
        return int(self._results.see(self._returned))

    def hold(self) -> int:
        """Keep the last call's outputs, as its caller would."""
        self._kept = self._returned
        return 0

    def give(self) -> int:
        """Copy the kept outputs to the places of the last call's, and drop them."""
        for value, place in zip(self._kept, self._places, strict=False):
            _copy(place, value)
        self._kept = []
        return 0


def nested(form: Mapping[str, Any] | None, tensors: Sequence[torch.Tensor]) -> Sequence[object]:
    """Return the arguments of a call as the form nests them, then the outputs."""
    if form is None:
        return tensors
    count = sum(1 for _ in paths(form["arguments"]))
    return [*_nest(form["arguments"], tensors[:count]), *tensors[count:]]


def is_destination(spec: Mapping[str, Any]) -> bool:
    """Return True if candidates write to outputs that they are given."""
    call = spec["calls"][0]
    return call is not None and call["calling"] == "destination"


def _nest(form: Mapping[str, Any], tensors: Sequence[torch.Tensor]) -> Sequence[object]:
    device = tensors[0].device if tensors else torch.device("cpu")
    arguments = rebuild(form, tensors, partial(_make_room, device))
    return arguments if isinstance(arguments, tuple) else ()


def _make_room(device: torch.device, shape: Sequence[int], dtype: str) -> torch.Tensor:
    return torch.empty(tuple(shape), dtype=_DTYPES[dtype], device=device)


def _outputs_of(returned: Sequence[object], places: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    if len(returned) != len(places):
        raise BadOutputError(f"forward returns {len(returned)} values, the reference {len(places)}")
    for index, (value, place) in enumerate(zip(returned, places, strict=True)):
        refuse_output(index, value, place)
    return [value for value in returned if isinstance(value, torch.Tensor)]


def _made_dense(result: object) -> Sequence[object]:
    """Make plain tensors dense, inside the call's time; leave the rest to be refused."""
    returned = result if isinstance(result, tuple | list) else (result,)
    return [
        _dense(value) if type(value) is torch.Tensor and _layout_of(value) == torch.strided else value
        for value in returned
    ]


def refuse_output(index: int, value: object, place: torch.Tensor) -> None:
    """Raise BadOutputError unless an output is a plain tensor like the reference's, in memory of its own."""
    what = f"output {index} of forward"
    if type(value) is not torch.Tensor:
        raise BadOutputError(f"{what} is {type(value).__name__}, not a plain torch.Tensor")
    if value.device != place.device or _layout_of(value) != torch.strided:
        raise BadOutputError(f"{what} is {value.layout} on {value.device}, the reference's is dense on {place.device}")
    if value.dtype != place.dtype:
        raise BadOutputError(f"{what} is {value.dtype}, the reference's is {place.dtype}")
    if value.shape != place.shape:
        raise BadOutputError(f"{what} has shape {tuple(value.shape)}, the reference's {tuple(place.shape)}")
    if _shares_memory(value, place):
        raise BadOutputError(f"{what} lies in memory that is not the module's own")


def _shares_memory(value: torch.Tensor, place: torch.Tensor) -> bool:
    """True if an output lies where outputs are copied to: then no copy is made, but its cost would be taken off."""
    begins, ends = _address(place), _address(place) + place.numel() * place.element_size()
    steps = zip(_sizes_of(value), _strides_of(value), strict=True)
    last = sum((size - 1) * step for size, step in steps) * place.element_size()
    return _address(value) < ends and _address(value) + last >= begins


def lay_state(model: torch.nn.Module, state: Mapping[str, torch.Tensor], parameters: int) -> None:
    """Copy the reference's state into a module: by name, or else parameters by their order.

    Args:
        model: the candidate's.
        state: parameters, then buffers, then plain tensor attributes.
        parameters: number of parameters in `state`.

    Raises:
        NoEntryPointError: the parameters do not fit.
    """
    wanted = dict(itertools.islice(state.items(), parameters))
    own = dict(model.named_parameters())
    known = {name for name, _ in itertools.chain(model.named_parameters(), model.named_buffers())}
    laid = {name: value for name, value in state.items() if name in known}
    if not all(name in own and own[name].shape == value.shape for name, value in wanted.items()):
        if [tensor.shape for tensor in own.values()] != [tensor.shape for tensor in wanted.values()]:
            raise NoEntryPointError(_say_misfit(own, wanted))
        laid |= dict(zip(own, wanted.values(), strict=True))
    modules = dict(model.named_modules())
    with torch.no_grad():
        for name, value in state.items():
            path, _, attribute = name.rpartition(".")
            if name in laid or name in wanted or path not in modules:
                continue
            held = vars(modules[path]).get(attribute)
            if isinstance(held, torch.Tensor) and held.shape == value.shape:
                held.copy_(value)
        model.load_state_dict(laid, strict=False)


def _say_misfit(own: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> str:
    shown = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in wanted.items())
    found = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in own.items()) or "none"
    return (
        "the parameters of ModelNew are not the reference's, by name or by order and shape: "
        f"it has {found[:600]}; the reference has {shown[:600]}"
    )


class Results:
    """Memory of earlier results, without keeping it alive. Results may lie in `given`, the caller's own tensors."""

    def __init__(self, given: Iterable[torch.Tensor]) -> None:
        self._given = {_storage(tensor).data_ptr() for tensor in given}
        self._known: dict[int, _Known] = {}

    def see(self, returned: Sequence[torch.Tensor]) -> bool:
        """Remember a call's results. Returns True if one overwrote an earlier call's result with other contents."""
        seen: dict[int, _Known] = {}
        for value in returned:
            storage = _storage(value)
            if value.numel() and storage.data_ptr() not in self._given:
                seen[_address(value)] = _Known(storage, _sampled(value))
        known = {at: before for at, before in self._known.items() if before.exists}
        self._known = known | seen
        return any(at in known and known[at].sample != now.sample for at, now in seen.items())


class _Known:
    def __init__(self, storage: torch.UntypedStorage, sample: list[int]) -> None:
        self._storage = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self.sample = sample

    @property
    def exists(self) -> bool:
        return not self._storage.expired()  # type: ignore[no-untyped-call]


def _sampled(value: torch.Tensor) -> list[int]:
    flat = _flat(_flat(value, -1), torch.uint8)
    return _listed(flat[:: max(1, flat.numel() // _SAMPLES)])
