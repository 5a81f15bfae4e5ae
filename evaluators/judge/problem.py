"""Runs a problem's own code: the module, its model, its inputs. Trusted, but it may be broken.

The state that the model computes with (parameters, buffers, other tensors it holds) is part of every call's data: a
candidate gets it as inputs.
"""

from __future__ import annotations

import copy
import inspect
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import TypeAlias, TypeVar

import torch

from messages.tasks import TaskSpec, TensorSpec

Tensors: TypeAlias = tuple[torch.Tensor, ...]
_T = TypeVar("_T")
_MODULE_NAME = "ksearch_problem"
_INPUT_COPIES = 6
_ALL_COPIES = 10
"""Memory that judging takes, in multiples of the inputs, and of all tensors (measured): buffers, and float64."""

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
    )
}
"""What a tensor of a task may hold."""


class ProblemError(Exception):
    """The problem's code failed, or does what a task may not do. The text is for the one who wrote it."""


class Problem:
    """A task's reference program, ready to run."""

    def __init__(self, task: TaskSpec) -> None:
        """Load the problem and run it once.

        Raises:
            ProblemError: it cannot be used.
        """
        self._module = _load_module(task)
        self.trains = True
        """Whether the model is in training mode, as KernelBench leaves it."""
        self.init_inputs, self._model = _build(self._module, _seed_of(task))
        self.state: Tensors = tuple(tensor.detach().clone() for _, tensor in _state_of(self._model))
        self.state_names = tuple(name for name, _ in _state_of(self._model))
        self.parameter_count = sum(1 for _ in self._model.parameters())
        self._wide: torch.nn.Module | None = None
        inputs = self.inputs(seed=_seed_of(task))
        require_memory(_INPUT_COPIES * sum(tensor.nbytes for tensor in (*inputs, *self.state)))
        self._input_layout = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        self.output_specs: tuple[TensorSpec, ...] = ()
        self._admit(inputs)
        require_memory(_ALL_COPIES * sum(math.prod(spec.shape) * DTYPES[spec.dtype].itemsize for spec in self.tensors))

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, then state, then outputs."""
        inputs = zip(self._input_names(), self._input_layout, strict=True)
        return (
            *(_spec(name, "input", shape, dtype) for name, (shape, dtype) in inputs),
            *(
                _spec(name, "parameter", tensor.shape, tensor.dtype)
                for name, tensor in zip(self.state_names, self.state, strict=True)
            ),
            *self.output_specs,
        )

    def inputs(self, seed: int) -> Tensors:
        """Return what `get_inputs` gives under a seed: dense tensors.

        Raises:
            ProblemError: it gives something else, or other shapes than before.
        """
        torch.manual_seed(seed)
        random.seed(seed)
        given = _called("get_inputs()", self._module.get_inputs)
        if not isinstance(given, Sequence):
            raise ProblemError(f"get_inputs() returns {type(given).__name__}; it must return a list of tensors")
        for index, value in enumerate(given):
            _admit_tensor(f"get_inputs()[{index}]", value)
        tensors = tuple(value.detach().contiguous() for value in given)
        layout = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if layout != getattr(self, "_input_layout", layout):
            raise ProblemError("get_inputs() returns other shapes or dtypes from one call to the next")
        return tensors

    def reference(self, inputs: Tensors, state: Tensors, *, wide: bool = False) -> Tensors:
        """Run the reference; the tensors it is given stay as they are.

        Args:
            inputs: as `inputs` gives them.
            state: as `self.state`.
            wide: compute in float64. Floating inputs and state are converted.

        Raises:
            ProblemError: it fails; with `wide` also where it has no float64 form.
        """
        model = self._widened() if wide else self._model
        put_state(model, state)
        given = tuple(widen(tensor) for tensor in inputs) if wide else inputs
        outputs = run_model(model, given)
        if wide and any(output.dtype in {torch.float32, torch.float16, torch.bfloat16} for output in outputs):
            raise ProblemError("the reference leaves float64 on its way")
        return outputs

    def _widened(self) -> torch.nn.Module:
        if self._wide is None:
            self._wide = _called("Model in float64", lambda: copy.deepcopy(self._model).double())
        return self._wide

    def _admit(self, inputs: Tensors) -> None:
        """Run the reference twice and see that it can be judged by.

        Raises:
            ProblemError: it changes its inputs, is random, or returns no tensors.
        """
        before = tuple(tensor.clone() for tensor in inputs)
        first = self.reference(inputs, self.state)
        if not all(_same(now, then) for now, then in zip(inputs, before, strict=True)):
            raise ProblemError("the reference changes its inputs; write it without in-place operations on them")
        if not _all_close(first, self.reference(inputs, self.state)):
            self.trains = False
            self._model.eval()
            first = self.reference(inputs, self.state)
            if not _all_close(first, self.reference(inputs, self.state)):
                raise ProblemError("the reference is random: two calls with the same inputs give different outputs")
        names = ("output",) if len(first) == 1 else tuple(f"output{index}" for index in range(len(first)))
        self.output_specs = tuple(
            _spec(name, "output", tensor.shape, tensor.dtype) for name, tensor in zip(names, first, strict=True)
        )

    def _input_names(self) -> Iterator[str]:
        """Yield the names of `forward`'s arguments; `input3` where it has none."""
        names = [
            parameter.name
            for parameter in inspect.signature(self._model.forward).parameters.values()
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        ]
        for index in range(len(self._input_layout)):
            yield names[index] if index < len(names) else f"input{index}"


def require_memory(needed_bytes: int) -> None:
    """Refuse a problem for which this host is too small, before the kernel kills somebody.

    Raises:
        ProblemError: it is.
    """
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), needed_bytes)
    if needed_bytes > free:
        raise ProblemError(
            f"judging it takes {needed_bytes / 2**30:.1f} GiB of memory or more, but {free / 2**30:.1f} GiB are free; "
            "use smaller inputs"
        )


def load_model(task: TaskSpec) -> torch.nn.Module:
    """Load a problem for its model alone, as the baseline worker needs it. Runs nothing else.

    Raises:
        ProblemError: it fails.
    """
    return _build(_load_module(task), _seed_of(task))[1]


def run_model(model: torch.nn.Module, inputs: Tensors) -> Tensors:
    """Call a model and return its outputs as a tuple, dense.

    Raises:
        ProblemError: it fails, or returns something else than tensors.
    """
    with torch.no_grad():
        result = _called("Model.forward()", lambda: model(*inputs))
    outputs = (result,) if isinstance(result, torch.Tensor) else result
    if not isinstance(outputs, tuple | list) or not outputs:
        raise ProblemError(
            f"Model.forward() returns {type(result).__name__}; it must return a tensor or a tuple of them"
        )
    for index, value in enumerate(outputs):
        _admit_tensor(f"output {index} of Model.forward()", value)
    return tuple(value.detach().contiguous() for value in outputs)


def put_state(model: torch.nn.Module, state: Tensors) -> None:
    """Copy values into parameters, buffers and other tensors of a model, in the order of `_state_of`."""
    with torch.no_grad():
        for (_, own), value in zip(_state_of(model), state, strict=True):
            own.copy_(value)


def share_parameters(model: torch.nn.Module, state: Tensors) -> None:
    """Have a model compute with these very tensors as parameters; buffers, which it may change, are copied."""
    put_state(model, state)
    for parameter, value in zip(model.parameters(), state, strict=False):
        parameter.data = value


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a floating tensor in float64, others as they are."""
    return tensor.double() if tensor.is_floating_point() else tensor


def _state_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """List parameters, then buffers, then tensors that modules hold as plain attributes, each in module order."""
    plain = [
        (f"{path}.{name}" if path else name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    return [*model.named_parameters(), *model.named_buffers(), *plain]


def _load_module(task: TaskSpec) -> ModuleType:
    module = ModuleType(_MODULE_NAME)
    sys.modules[_MODULE_NAME] = module
    code = compile(task.text, f"{task.name}.py", "exec")
    _called("the file", lambda: exec(code, module.__dict__))  # noqa: S102 - the user's own problem
    return module


def _seed_of(task: TaskSpec) -> int:
    """Return the seed under which a task's model is made: the same parameters in every run."""
    return int(task.task_id[:12], 16)


def _build(module: ModuleType, seed: int) -> tuple[Sequence[object], torch.nn.Module]:
    """Return the arguments of the model, and the model."""
    torch.manual_seed(seed)
    random.seed(seed)
    arguments = _called("get_init_inputs()", module.get_init_inputs)
    if not isinstance(arguments, list | tuple):
        raise ProblemError(f"get_init_inputs() returns {type(arguments).__name__}; it must return a list")
    model = _called("Model(*get_init_inputs())", lambda: module.Model(*arguments))
    if not isinstance(model, torch.nn.Module):
        raise ProblemError("Model is no torch.nn.Module")
    return arguments, model


def _called(what: str, function: Callable[[], _T]) -> _T:
    try:
        return function()
    except ProblemError:
        raise
    except (Exception, SystemExit) as error:  # the problem's code may raise whatever it likes
        text = " ".join(str(error).split())[:500]
        raise ProblemError(f"{what} raises {type(error).__name__}: {text}") from error


def _admit_tensor(what: str, value: object) -> None:
    if not isinstance(value, torch.Tensor):
        raise ProblemError(f"{what} is {type(value).__name__}, not a tensor")
    if value.device.type != "cpu":
        raise ProblemError(f"{what} is on device {value.device}; leave tensors on the CPU")
    if value.dtype not in DTYPES.values():
        raise ProblemError(f"{what} is {value.dtype}, which is not supported")
    if value.numel() == 0:
        raise ProblemError(f"{what} is empty")


def _spec(name: str, role: str, shape: torch.Size, dtype: torch.dtype) -> TensorSpec:
    word = str(dtype).removeprefix("torch.")
    if role == "input":
        return TensorSpec(name=name, role="input", shape=tuple(shape), dtype=word)
    if role == "output":
        return TensorSpec(name=name, role="output", shape=tuple(shape), dtype=word)
    return TensorSpec(name=name, role="parameter", shape=tuple(shape), dtype=word)


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return torch.equal(left.view(-1).view(torch.uint8), right.view(-1).view(torch.uint8))


def _all_close(left: Tensors, right: Tensors) -> bool:
    """Say whether two runs agree as far as the order of sums lets them."""
    pairs = zip(left, right, strict=True)
    # Equal bits first: comparing with a tolerance takes several times the tensor's memory.
    return all(
        _same(one, other) or torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True) for one, other in pairs
    )
