"""Runs a problem's own code: the module, its model, its inputs. Trusted, but it may be broken.

The state that the model computes with (parameters, buffers, other tensors it holds) is part of every call's data: a
candidate gets it as inputs.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import torch

from evaluators.judge.agreement import all_close, same_bits
from evaluators.judge.model_state import put_state, state_of
from evaluators.judge.nests import (
    DTYPES,
    Tensors,
    call_form,
    call_model,
    check_outputs,
    gradients_of,
    place_outputs,
    run_model,
    take_inputs,
)
from evaluators.judge.problem_code import ProblemError, Staged, called, load_module, seed_all, stage_of
from evaluators.structure import Form, paths
from messages.calls import CallForm
from messages.tasks import Dimension, Measure, TaskSpec, TensorSpec, Workload

__all__ = [
    "DTYPES",
    "Problem",
    "ProblemError",
    "Tensors",
    "load_model",
    "needed_bytes",
    "require_memory",
    "run_model",
    "widen",
]

_T = TypeVar("_T")
_INPUT_COPIES = 6
_MOST_SAID = 500
_ALL_COPIES, _ALL_COPIES_ON_GPU = 10, 14
"""Memory that judging takes, in multiples of the inputs, and of all tensors (measured); a GPU's is everybody's."""


class Problem:
    """A task's reference program, ready to run."""

    def __init__(self, task: TaskSpec, device: str = "cpu", workload: Workload | None = None) -> None:
        """Load the problem and run it once.

        Args:
            task: the problem.
            device: where its tensors live and its reference runs.
            workload: what its inputs are made with; null: the task's first, if it names any.

        Raises:
            ProblemError: it cannot be used.
        """
        self.device = device
        self.measure: Measure = task.rules.measure
        self.rules = task.rules
        self.stage = stage_of(task, device)
        """What the problem's code is to run in."""
        with self.stage():
            self._module = load_module(task, device)
        self.trains = True
        """Whether the model is in training mode, as KernelBench leaves it."""
        self._given = _given_by(task, workload)
        with self.stage():
            self.init_inputs, self._model = _build(self._module, task, device, self._given)
        self.state: Tensors = tuple(tensor.detach().clone() for _, tensor in state_of(self._model))
        self.state_names = tuple(name for name, _ in state_of(self._model))
        self.parameter_count = sum(1 for _ in self._model.parameters())
        if task.calling != "module" and self.state:
            raise ProblemError(
                f"Model holds {self.state_names[0]}, but candidates of this task are functions: give it as an input"
            )
        self._wide: torch.nn.Module | None = None
        self._form: Form | None = None
        """Of the arguments of a call."""
        self._layout: tuple[tuple[torch.Size, torch.dtype], ...] = ()
        inputs = self.inputs(seed=_seed_of(task))
        require_memory(_INPUT_COPIES * sum(tensor.nbytes for tensor in (*inputs, *self.state)), device)
        self.output_specs: tuple[TensorSpec, ...] = ()
        self._output_form = self._admit(inputs)
        self.changed_state = tuple(
            name
            for (name, now), before in zip(state_of(self._model), self.state, strict=True)
            if not same_bits(now.detach().contiguous(), before.contiguous())
        )
        """Names of the state that a call of the reference changes: what normalisations learn in training mode."""
        self.call: CallForm | None = call_form(task.calling, self._argument_names(), self.form, self._output_form)
        """What a call takes and returns; null: one tensor after the other."""
        require_memory(needed_bytes(self), device)
        if self.has_check and (said := self.complaint(inputs, self.reference(inputs, self.state))):
            raise ProblemError(f"check_outputs() refuses what the reference itself returns: {said}")

    @property
    def form(self) -> Form:
        """Form of the arguments of a call."""
        if self._form is None:
            raise ProblemError("get_inputs() was not called yet")
        return self._form

    @property
    def as_drawn(self) -> tuple[bool, ...]:
        """Say of each input whether it has only values as `get_inputs` draws them: the file's `AS_DRAWN` names it.

        Raises:
            ProblemError: it names something else than inputs.
        """
        names, kept = tuple(self._input_names()), getattr(self._module, "AS_DRAWN", ())
        if not isinstance(kept, list | tuple) or not all(isinstance(name, str) for name in kept):
            raise ProblemError(f"AS_DRAWN is {kept!r}; it must be a list of names of inputs")
        if unknown := next((one for one in kept if not any(_is_part(name, one) for name in names)), None):
            raise ProblemError(f"AS_DRAWN names {unknown!r}, which is no input; there are: {', '.join(names)}")
        return tuple(any(_is_part(name, one) for one in kept) for name in names)

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """Inputs, then state, then outputs."""
        inputs = zip(self._input_names(), self._layout, strict=True)
        return (
            *(_spec(name, "input", shape, dtype) for name, (shape, dtype) in inputs),
            *(
                _spec(name, "parameter", tensor.shape, tensor.dtype)
                for name, tensor in zip(self.state_names, self.state, strict=True)
            ),
            *self.output_specs,
        )

    def inputs(self, seed: int) -> Tensors:
        """Return the tensors that `get_inputs` gives for the workload under a seed: dense.

        Raises:
            ProblemError: it gives something else, or other shapes or constants than before.
        """
        seed_all(seed)
        with self.stage(), torch.device(self.device):
            given = called("get_inputs()", lambda: _filled(self._module.get_inputs, self._given))
        form, tensors = take_inputs(given, self.device)
        layout = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if self._form is None:
            self._form, self._layout = form, layout
        if layout != self._layout:
            raise ProblemError("get_inputs() returns other shapes or dtypes from one call to the next")
        if form != self._form:
            raise ProblemError("get_inputs() returns other numbers, texts or keys from one call to the next")
        return tensors

    @property
    def has_check(self) -> bool:
        """Whether the file says itself what is right, by a function `check_outputs(arguments…, output)`.

        Where an answer is right if it has certain properties (the factors of a matrix), outputs of one right program
        differ from those of another by more than any rounding.
        """
        return callable(vars(self._module).get("check_outputs"))

    def complaint(self, inputs: Tensors, outputs: Tensors) -> str:
        """Return what the file's `check_outputs` has to say against outputs, bounded; empty if nothing.

        It is the problem's own code, and runs here, on memory that is the judge's. Where it raises, it says so.

        Raises:
            ProblemError: it returns something else than a text.
        """
        with self.stage():
            said = check_outputs(self._module.check_outputs, self.form, inputs, self._output_form, outputs, self.device)
        if not isinstance(said, str):
            raise ProblemError(
                f"check_outputs() returns {type(said).__name__}; it must return a text, empty where all is right"
            )
        return " ".join(said.split())[:_MOST_SAID]

    @property
    def draws(self) -> bool:
        """Whether the file says that outputs are drawn at random, by a function `positions(arguments…, outputs)`.

        It says where in [0, 1) each draw of many calls lies, so that right ones are uniform; `judge/draws.py` counts.
        """
        return callable(vars(self._module).get("positions"))

    def positions(self, inputs: Tensors, outputs: Sequence[Tensors]) -> dict[str, torch.Tensor]:
        """Return what the file's `positions` says of the outputs of calls on the same inputs: (calls, rows) by order.

        Args:
            inputs: of the calls.
            outputs: of each call, in their order; its check has nothing against any of them alone.

        Raises:
            ProblemError: it raises, or returns something else.
        """
        stacked = tuple(torch.stack(parts) for parts in zip(*outputs, strict=True))
        with self.stage():
            return place_outputs(self._module.positions, self.form, inputs, self._output_form, stacked, self.device)

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
        with self.stage():
            outputs = run_model(model, given, self.device, self.form, wide=wide)
        if wide and any(output.dtype in {torch.float32, torch.float16, torch.bfloat16} for output in outputs):
            raise ProblemError("the reference leaves float64 on its way")
        return outputs

    def gradients(self, inputs: Tensors) -> tuple[torch.Tensor | None, ...]:
        """Return how the outputs' sum, each element weighted at random, changes with each input; None: it does not.

        Raises:
            ProblemError: the reference fails, or cannot be differentiated.
        """
        put_state(self._model, self.state)
        with self.stage():
            return gradients_of(self._model, inputs, self.device, self.form)

    @cached_property
    def needs_stage(self) -> bool:
        """Say whether the reference itself, not only its inputs, names a GPU that is not there: that slows it."""
        inputs = self.inputs(seed=0)
        put_state(self._model, self.state)
        reference = Staged(lambda: run_model(self._model, inputs, self.device, self.form), self.stage)
        reference()
        return reference.is_needed

    def _widened(self) -> torch.nn.Module:
        if self._wide is None:
            self._wide = called("Model in float64", lambda: copy.deepcopy(self._model).double())
        return self._wide

    def _admit(self, inputs: Tensors) -> Form:
        """Run the reference twice and see that it can be judged by. Returns the form of its outputs.

        Raises:
            ProblemError: it changes its inputs, is random, or returns no tensors.
        """
        before = tuple(tensor.clone() for tensor in inputs)
        with self.stage():
            output_form, first = call_model(self._model, inputs, self.device, self.form)
        if not all(same_bits(now, then) for now, then in zip(inputs, before, strict=True)):
            raise ProblemError("the reference changes its inputs; write it without in-place operations on them")
        if not self.draws and not all_close(first, self.reference(inputs, self.state)):
            self.trains = False
            self._model.eval()
            first = self.reference(inputs, self.state)
            if not all_close(first, self.reference(inputs, self.state)):
                raise ProblemError("the reference is random: two calls with the same inputs give different outputs")
        names = ("output",) if len(first) == 1 else tuple(_output_names(output_form))
        self.output_specs = tuple(
            _spec(name, "output", tensor.shape, tensor.dtype) for name, tensor in zip(names, first, strict=True)
        )
        return output_form

    def _input_names(self) -> Iterator[str]:
        """Yield the names of the tensors among `forward`'s arguments."""
        names = self._argument_names()
        for path in paths(self.form):
            index, dot, below = path.partition(".")
            yield f"{names[int(index)]}{dot}{below}"

    def _argument_names(self) -> list[str]:
        """Return what `forward` calls the arguments that it is given; `input3` where it has no name for one."""
        names = [
            parameter.name
            for parameter in inspect.signature(self._model.forward).parameters.values()
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        ]
        given = self.form["items"]
        count = len(given) if isinstance(given, list) else 0
        return [names[index] if index < len(names) else f"input{index}" for index in range(count)]


def needed_bytes(problem: Problem) -> int:
    """Return how much memory judging a candidate takes, or more."""
    copies = _ALL_COPIES if problem.device == "cpu" else _ALL_COPIES_ON_GPU
    return copies * sum(math.prod(spec.shape) * DTYPES[spec.dtype].itemsize for spec in problem.tensors)


def require_memory(most_bytes: int, device: str = "cpu") -> None:
    """Refuse a problem for which this host or GPU is too small, before the kernel kills somebody.

    Raises:
        ProblemError: it is.
    """
    if device != "cpu":
        torch.cuda.empty_cache()  # what torch keeps of tensors that are gone is free, and the driver does not know it
    free = _free_bytes() if device == "cpu" else int(torch.cuda.mem_get_info(device)[0])
    if most_bytes > free:
        raise ProblemError(
            f"judging it takes {most_bytes / 2**30:.1f} GiB of memory or more, but {free / 2**30:.1f} GiB are free; "
            "use smaller inputs"
        )


def _free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def load_model(task: TaskSpec, device: str = "cpu", workload: Workload | None = None) -> torch.nn.Module:
    """Load a problem for its model alone, as the baseline worker needs it; see `Problem`. Runs nothing else.

    Raises:
        ProblemError: it fails.
    """
    with stage_of(task, device)():
        return _build(load_module(task, device), task, device, _given_by(task, workload))[1]


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a floating tensor in float64, others as they are."""
    return tensor.double() if tensor.is_floating_point() else tensor


def _seed_of(task: TaskSpec) -> int:
    """Return the seed under which a task's model is made: the same parameters in every run."""
    return int(task.task_id[:12], 16)


def _given_by(task: TaskSpec, workload: Workload | None) -> dict[str, Dimension]:
    """Return what a workload gives to the problem's functions."""
    chosen = workload or next(iter(task.shown), None)
    return chosen.dimensions if chosen else {}


def _filled(function: Callable[..., _T], given: dict[str, Dimension]) -> _T:
    """Call a function of the problem with as much of what is given as it takes."""
    if not given:
        return function()
    parameters = inspect.signature(function).parameters
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function(**given)
    return function(**{name: value for name, value in given.items() if name in parameters})


def _build(
    module: ModuleType, task: TaskSpec, device: str, given: dict[str, Dimension]
) -> tuple[Sequence[object], torch.nn.Module]:
    """Return the arguments of the model, and the model: models of the same arguments have the same parameters."""
    seed_all(_seed_of(task))
    arguments = called("get_init_inputs()", lambda: _filled(module.get_init_inputs, given))
    if not isinstance(arguments, list | tuple):
        raise ProblemError(f"get_init_inputs() returns {type(arguments).__name__}; it must return a list")
    with torch.device(device):
        model = called("Model(*get_init_inputs())", lambda: module.Model(*arguments))
    if not isinstance(model, torch.nn.Module):
        raise ProblemError("Model is no torch.nn.Module")
    return arguments, model.to(device)


def _is_part(name: str, of: str) -> bool:
    """Say whether a tensor is what a name means, or lies below it in a nest."""
    return name == of or name.startswith(f"{of}.")


def _output_names(form: Form) -> Iterator[str]:
    """Yield the names of several outputs: `output1`, or by its key in a dict."""
    for path in paths(form):
        yield f"output{path}" if path[:1].isdecimal() else path


def _spec(name: str, role: str, shape: torch.Size, dtype: torch.dtype) -> TensorSpec:
    word = str(dtype).removeprefix("torch.")
    if role == "input":
        return TensorSpec(name=name, role="input", shape=tuple(shape), dtype=word)
    if role == "output":
        return TensorSpec(name=name, role="output", shape=tuple(shape), dtype=word)
    return TensorSpec(name=name, role="parameter", shape=tuple(shape), dtype=word)
