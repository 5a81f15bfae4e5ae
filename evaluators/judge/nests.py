"""What a problem's functions take and return, as tensors and a form: nests are taken apart and made anew here.

The form says what lies between the tensors (`evaluators/structure.py`); tensors are dense, on the problem's device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import msgspec
import torch

from evaluators.judge.problem_code import NoMemoryError, ProblemError, called
from evaluators.structure import TENSOR, Form, Room, StructureError, describe, flatten, rebuild
from messages.calls import CallForm, Calling, ConstantPlace, ListOf, Structure, TensorPlace, TupleOf, leaves_of

Tensors: TypeAlias = tuple[torch.Tensor, ...]

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32,
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
}
"""What a tensor of a task may hold."""


_CALLS_AND_ROWS = 2


def take_inputs(given: object, device: str) -> tuple[Form, Tensors]:
    """Take apart what `get_inputs` returned: the arguments of a call.

    Raises:
        ProblemError: it is no list or tuple, or holds what cannot be an input.
    """
    if not isinstance(given, list | tuple):
        raise ProblemError(
            f"get_inputs() returns {type(given).__name__}; it must return a list of the arguments: tensors, numbers, "
            "or lists, tuples and dicts of them"
        )
    form, tensors = _taken_apart(tuple(given), "get_inputs()", ("cpu", device))
    return form, tuple(tensor.detach().to(device).contiguous() for tensor in tensors)


def run_model(
    model: torch.nn.Module, inputs: Tensors, device: str = "cpu", form: Form | None = None, *, wide: bool = False
) -> Tensors:
    """Call a model and return its outputs' tensors, dense.

    Args:
        model: the reference.
        inputs: tensors among its arguments.
        device: where they lie.
        form: of the arguments; null: one tensor after the other.
        wide: whether floating inputs are in float64; then room for outputs is as well.

    Raises:
        ProblemError: it fails, or returns something else than tensors.
    """
    result = _call(model, inputs, device, form, wide=wide)
    # This is timed: what is around the model counts as the reference's time, and would be a candidate's credit.
    outputs = (result,) if isinstance(result, torch.Tensor) else result
    if isinstance(outputs, tuple | list) and all(type(value) is torch.Tensor for value in outputs):
        for value in outputs:
            _admit_tensor("an output of Model.forward()", value, (device,))
        if outputs:
            return tuple(value.detach().contiguous() for value in outputs)
    return _outputs_of(result, device)[1]


def call_model(
    model: torch.nn.Module, inputs: Tensors, device: str, form: Form | None, *, wide: bool = False
) -> tuple[Form, Tensors]:
    """Call a model as `run_model` does. Returns the form of its outputs too.

    Raises:
        ProblemError: as `run_model`.
    """
    return _outputs_of(_call(model, inputs, device, form, wide=wide), device)


def gradients_of(
    model: torch.nn.Module, inputs: Tensors, device: str, form: Form | None
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradient of a random weighting of a model's outputs by each input; None where it has no influence.

    Raises:
        ProblemError: the model fails, or cannot be differentiated.
    """
    leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in inputs]

    def differentiate() -> tuple[torch.Tensor | None, ...]:
        result = _call(model, tuple(leaves), device, form, wide=False, differentiates=True)
        _, parts = flatten(result, lambda value: isinstance(value, torch.Tensor))
        outputs = [part for part in parts if isinstance(part, torch.Tensor) and part.requires_grad]
        wanted = [leaf for leaf in leaves if leaf.requires_grad]
        weights = [torch.randn_like(output) for output in outputs]
        found = iter(torch.autograd.grad(outputs, wanted, weights, allow_unused=True))
        return tuple(next(found) if leaf.requires_grad else None for leaf in leaves)

    return called("the gradient of Model.forward()", differentiate)


def _call(
    model: torch.nn.Module,
    inputs: Tensors,
    device: str,
    form: Form | None,
    *,
    wide: bool,
    differentiates: bool = False,
) -> object:
    arguments = inputs if form is None else rebuild(form, inputs, partial(_make_room, device, wide=wide))
    if not isinstance(arguments, tuple):
        raise TypeError("the form of arguments is a tuple's")
    with torch.set_grad_enabled(differentiates):
        return called("Model.forward()", lambda: model(*arguments))


def _outputs_of(result: object, device: str) -> tuple[Form, Tensors]:
    """Take apart what a model returned.

    Raises:
        ProblemError: it is something else than tensors.
    """
    if not isinstance(result, torch.Tensor) and not (isinstance(result, tuple | list | dict) and result):
        raise ProblemError(
            f"Model.forward() returns {type(result).__name__}; it must return a tensor, or a tuple, list or dict of "
            "them"
        )
    shape, tensors = _taken_apart(result, "output", (device,))
    if any(isinstance(leaf, ConstantPlace) and leaf.value is not None for leaf in leaves_of(as_structure(shape))):
        raise ProblemError(
            f"Model.forward() returns {describe(shape)}; numbers and texts are no outputs: return tensors"
        )
    if not tensors:
        raise ProblemError("Model.forward() returns no tensor")
    return shape, tuple(tensor.detach().contiguous() for tensor in tensors)


def check_outputs(
    check: Callable[..., object], form: Form, inputs: Tensors, output_form: Form, outputs: Tensors, device: str
) -> object:
    """Return what a problem's `check_outputs` says of outputs, or that it raises on them."""
    arguments = rebuild(form, inputs, partial(_make_room, device, wide=False))
    if not isinstance(arguments, tuple):
        raise TypeError("the form of arguments is a tuple's")
    with torch.no_grad():
        try:
            return called("check_outputs()", lambda: check(*arguments, rebuild(output_form, outputs)))
        except NoMemoryError:
            raise
        except ProblemError as error:
            return str(error)


def place_outputs(
    place: Callable[..., object], form: Form, inputs: Tensors, output_form: Form, outputs: Tensors, device: str
) -> dict[str, torch.Tensor]:
    """Return what a problem's `positions` says of the outputs of several calls, which are stacked.

    Raises:
        ProblemError: it raises, or returns something else than positions by order: (calls, rows) in [0, 1].
    """
    arguments = rebuild(form, inputs, partial(_make_room, device, wide=False))
    if not isinstance(arguments, tuple):
        raise TypeError("the form of arguments is a tuple's")
    with torch.no_grad():
        found = called("positions()", lambda: place(*arguments, rebuild(output_form, outputs)))
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise ProblemError(f"positions() returns {type(found).__name__}; it must return a dict of tensors")
    for name, value in found.items():
        if (
            value.dim() != _CALLS_AND_ROWS
            or len(value) != len(outputs[0])
            or not bool(((value >= 0) & (value <= 1)).all())
        ):
            raise ProblemError(f"positions(): {name!r} must be a tensor of calls x rows with values between 0 and 1")
    return {str(name): value.cpu() for name, value in found.items()}


def as_structure(form: Form) -> Structure:
    """Return a form as a message."""
    structure: Structure = msgspec.convert(form, Structure)
    return structure


def as_form(structure: Structure) -> Form:
    """Return a message as the form that runners get."""
    form: Form = msgspec.to_builtins(structure)
    return form


def call_form(calling: Calling, names: Sequence[str], arguments: Form, outputs: Form) -> CallForm | None:
    """Return how calls are made; None where they take tensors one after the other, and return them so.

    Args:
        calling: how `python` candidates are called.
        names: of the arguments.
        arguments: their form.
        outputs: form of what is returned.
    """
    given, returned = as_structure(arguments), as_structure(outputs)
    is_row = isinstance(returned, TensorPlace) or (isinstance(returned, TupleOf | ListOf) and _is_flat(returned))
    if not isinstance(given, TupleOf):
        raise TypeError("the form of arguments is a tuple's")
    if calling == "module" and _is_flat(given) and is_row:
        return None
    return CallForm(calling=calling, arguments=given, outputs=returned, names=tuple(names))


def _is_flat(structure: TupleOf | ListOf) -> bool:
    return all(isinstance(item, TensorPlace) for item in structure.items)


def _taken_apart(value: object, what: str, devices: tuple[str, ...]) -> tuple[Form, Sequence[torch.Tensor]]:
    if isinstance(value, torch.Tensor):  # as most references return: a call's time is not to depend on nests
        _admit_tensor(what, value, devices)
        return dict(TENSOR), (value,)
    try:
        form, found = flatten(value, lambda item: isinstance(item, torch.Tensor), what, room_of=_room_of)
    except StructureError as error:
        raise ProblemError(str(error)) from error
    tensors = [tensor for tensor in found if isinstance(tensor, torch.Tensor)]
    for index, tensor in enumerate(tensors):
        _admit_tensor(f"{what}: tensor {index}", tensor, devices)
    return form, tensors


def _room_of(value: object) -> Room | None:
    """Say for which output a tensor on the `meta` device stands."""
    if not isinstance(value, torch.Tensor) or value.device.type != "meta":
        return None
    return tuple(value.shape), str(value.dtype).removeprefix("torch.")


def _make_room(device: str, shape: Sequence[int], dtype: str, *, wide: bool) -> torch.Tensor:
    kind = DTYPES[dtype]
    return torch.empty(tuple(shape), dtype=torch.float64 if wide and kind.is_floating_point else kind, device=device)


def _admit_tensor(what: str, tensor: torch.Tensor, devices: tuple[str, ...]) -> None:
    if str(tensor.device) not in devices:
        raise ProblemError(f"{what} is on device {tensor.device}; it must be on {devices[-1]}")
    if tensor.dtype not in DTYPES.values():
        raise ProblemError(f"{what} is {tensor.dtype}, which is not supported")
    if tensor.layout != torch.strided:
        raise ProblemError(f"{what} is {tensor.layout}; it must be dense")
    if tensor.numel() == 0:
        raise ProblemError(f"{what} is empty")
