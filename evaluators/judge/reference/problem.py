"""Runs a problem's own code: its module, model, state and inputs. The code is trusted but may be broken.

A problem that names a GPU can run on the CPU. Covered: arguments of torch's functions and methods that name a device,
`.cuda()`, `.is_cuda`, `torch.Generator`, queries of `torch.cuda` (properties, streams, synchronisation), and Triton's
driver. Not covered: events (there is no time), memory statistics, graphs, NCCL, and direct calls of the CUDA driver.

Modules are imported as if they were beside the problem file, with their sources (`inspect`, `@triton.jit`), and again
with each loading. The model's state (parameters, buffers, other tensors) is part of every call's data: a candidate gets
it as inputs.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import math
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec
import torch
from torch.overrides import TorchFunctionMode

from evaluators.judge.check.low_bits import LOW_BITS, steps_apart, wrong_steps
from evaluators.runners.structure import TENSOR, Form, Room, StructureError, describe, flatten, paths, rebuild
from messages.calls import CallForm, Calling, ConstantPlace, ListOf, Structure, TensorPlace, TupleOf, leaves_of
from messages.tasks import Dimension, Measure, TaskSpec, TensorSpec, Workload

_T = TypeVar("_T")
_GPU = "cuda"
_CAPABILITY = (9, 0)
"""Compute capability of the simulated GPU, by which programs choose block sizes."""
_PROCESSORS = 4
"""Few multiprocessors, since persistent programs loop over as many, and the interpreter is slow."""
_SHARED_BYTES = 227 << 10
_WARP = 32
_Role: TypeAlias = Literal["input", "parameter", "output"]
_IS_CUDA = vars(torch._C.TensorBase)["is_cuda"].__get__  # noqa: SLF001 - the way torch itself names the property


class _ToDevice(TorchFunctionMode):
    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: Sequence[Any] = (),
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(options or {})
        if function is torch.Tensor.cuda:
            return arguments[0].to(self._device)
        if function == _IS_CUDA:
            return True
        if function is torch.Tensor.pin_memory:
            return arguments[0]
        given.pop("pin_memory", None)
        moved = {name: self._moved(value) for name, value in given.items()}
        if isinstance(moved.get("device"), int):
            moved["device"] = self._device
        return function(*(self._moved(value) for value in arguments), **moved)

    def _moved(self, value: object) -> object:
        if isinstance(value, torch.device) and value.type == _GPU:
            return torch.device(self._device)
        if isinstance(value, str) and (value == _GPU or value.startswith(f"{_GPU}:")):
            return self._device
        return value


@contextlib.contextmanager
def redirected(device: str) -> Iterator[None]:
    """Let named GPUs mean `device`, unless that is a GPU itself. May be nested; not for several threads."""
    if not device.startswith("cpu") or torch.Generator is not _TorchGenerator:
        yield
        return
    _pretend_driver()
    raw_stream = {"_cuda_getCurrentRawStream": lambda *_: 0}
    with (
        _put(torch.cuda, _cuda_answers()),
        _put(torch, {"Generator": _Generator}),
        _put(torch._C, raw_stream),  # noqa: SLF001 - what compiled programs import from there
        _ToDevice(device),
    ):
        yield


def interpret_triton() -> None:
    """Interpret kernels that are decorated from now on, autotuned ones in their first configuration.

    Raises:
        RuntimeError: triton was imported before, to compile.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" and "triton.language" in sys.modules:
        raise RuntimeError("triton was imported before it was to be interpreted")
    os.environ["TRITON_INTERPRET"] = "1"
    from evaluators.runners.triton_hooks import take_first_configurations  # noqa: PLC0415 - it imports triton

    take_first_configurations()


_TorchGenerator = torch.Generator


class _Generator:
    """Makes generators of the one device. A class, since annotations name it."""

    def __new__(cls, device: object = "cpu") -> torch.Generator:  # type: ignore[misc]  # noqa: ARG004 - there is one
        return _TorchGenerator("cpu")


def _cuda_answers() -> dict[str, object]:
    """Return the functions of `torch.cuda` for one GPU that does everything at once."""
    quiet = ("synchronize", "wait_stream", "record_event", "wait_event")
    stream = SimpleNamespace(cuda_stream=0, **{name: _answering(None) for name in quiet})
    properties = SimpleNamespace(
        name="CPU",
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        multi_processor_count=_PROCESSORS,
        total_memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        shared_memory_per_block_optin=_SHARED_BYTES,
        warp_size=_WARP,
    )
    values = {
        **dict.fromkeys(("init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats")),
        **dict.fromkeys(("manual_seed", "manual_seed_all")),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
        **dict.fromkeys(("current_device", "_exchange_device", "_maybe_exchange_device"), 0),
        **dict.fromkeys(("Stream", "current_stream", "default_stream"), stream),
        "device_count": 1,
        "get_device_name": "CPU",
        "get_device_capability": _CAPABILITY,
        "get_device_properties": properties,
    }
    answers: dict[str, object] = {name: _answering(value) for name, value in values.items()}
    return answers | {name: _context() for name in ("device", "device_of", "_DeviceGuard", "stream")}


def _answering(value: object) -> Callable[..., object]:
    """Return a function with this result; `torch._dynamo` needs a different one for each name."""
    return lambda *_, **__: value


def _context() -> Callable[..., AbstractContextManager[None]]:
    return lambda *_, **__: nullcontext()


@contextlib.contextmanager
def _put(holder: object, values: Mapping[str, object]) -> Iterator[None]:
    before = {name: vars(holder)[name] for name in values if name in vars(holder)}
    vars(holder).update(values)
    try:
        yield
    finally:
        vars(holder).update(before)
        for name in values.keys() - before.keys():
            del vars(holder)[name]


def _pretend_driver() -> None:
    if os.environ.get("TRITON_INTERPRET") != "1" or "triton.runtime" not in sys.modules:
        return
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - imported by who interprets only
    from triton.runtime import driver  # noqa: PLC0415

    properties = {
        "multiprocessor_count": _PROCESSORS,
        "max_shared_mem": _SHARED_BYTES,
        "max_num_regs": 65536,
        "warpSize": _WARP,
        "sm_clock_rate": 1,
        "mem_clock_rate": 1,
        "mem_bus_width": 1,
    }
    target = GPUTarget(_GPU, _CAPABILITY[0] * 10 + _CAPABILITY[1], _WARP)
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda *_: 0,
            get_current_target=lambda: target,
            get_active_torch_device=lambda: torch.device("cpu"),
            get_device_interface=lambda: torch.cuda,
            get_device_capability=lambda *_: _CAPABILITY,
            utils=SimpleNamespace(get_device_properties=lambda *_: properties),
        )
    )


_MODULE_NAME = "ksearch_problem"


class ProblemError(Exception):
    """The problem's code failed, or does something that a task may not do. The text is for the problem's author."""


class NoMemoryError(ProblemError):
    """The GPU has too little memory, which a candidate may have taken, so the problem is not to blame."""


def stage_of(task: TaskSpec, device: str) -> Callable[[], AbstractContextManager[None]]:
    """Return the context for the problem's code: on a CPU, a GPU that it names means the CPU."""
    names_gpu = device == "cpu" and any("cuda" in text for text in _texts(task))
    return partial(redirected, device) if names_gpu else nullcontext


class Staged(Generic[_T]):
    """Calls a reference, in its stage only if it fails without, since operators take microseconds more there."""

    def __init__(self, run: Callable[..., _T], stage: Callable[[], AbstractContextManager[None]]) -> None:
        self._run, self._stage = run, stage
        self.is_needed = False
        """True if it failed without."""

    def __call__(self, *arguments: object) -> _T:
        """Call it."""
        if not self.is_needed:
            try:
                return self._run(*arguments)
            except ProblemError:
                if self._stage is nullcontext:
                    raise
                self.is_needed = True
        with self._stage():
            return self._run(*arguments)


def load_module(task: TaskSpec, device: str) -> ModuleType:
    """Run a task's problem text and return the module; to be called in its stage.

    Raises:
        ProblemError: it fails, or a file beside it has the name of a module that is already loaded.
    """
    for former in [one for one in sys.meta_path if isinstance(one, _Finder)]:
        sys.meta_path.remove(former)
        for name in former.files:
            sys.modules.pop(name, None)
    finder = _Finder(task)
    if taken := next((name for name in finder.files if name != _MODULE_NAME and name in sys.modules), None):
        path = finder.files[taken][0]
        raise ProblemError(f"the task's file {path!r} has the name of a module that the judge uses; rename it")
    sys.meta_path.insert(0, finder)
    if device == "cpu" and any("triton.jit" in text for text in _texts(task)):
        called("the file", interpret_triton)
    return called("the file", lambda: importlib.import_module(_MODULE_NAME))


def seed_all(seed: int) -> None:
    """Seed torch, random, and numpy where it is imported."""
    torch.manual_seed(seed)
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % (1 << 32))


def called(what: str, function: Callable[[], _T]) -> _T:
    """Call code of the problem; whatever it raises becomes a ProblemError."""
    try:
        return function()
    except ProblemError:
        raise
    except torch.OutOfMemoryError as error:
        raise NoMemoryError(f"{what} finds too little memory: {' '.join(str(error).split())[:500]}") from error
    except (Exception, SystemExit) as error:  # the problem's code may raise whatever it likes
        text = " ".join(str(error).split())[:500]
        raise ProblemError(f"{what} raises {type(error).__name__}: {text}") from error


def _texts(task: TaskSpec) -> tuple[str, ...]:
    return (task.text, *(file.text for file in task.files))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    def __init__(self, task: TaskSpec) -> None:
        self.files = {_MODULE_NAME: (f"{task.name}.py", task.text)}
        """Path and text by module name; the text is empty for folders without a file of their own."""
        for file in task.files:
            if file.path.endswith(".py"):
                *folders, name = file.path.removesuffix(".py").removesuffix("/__init__").split("/")
                for depth in range(1, len(folders) + 1):
                    self.files.setdefault(".".join(folders[:depth]), ("/".join(folders[:depth]), ""))
                self.files[".".join((*folders, name))] = (file.path, file.text)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the interface's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.files else None

    def is_package(self, fullname: str) -> bool:
        return not self.files[fullname][0].endswith(".py") or self.files[fullname][0].endswith("/__init__.py")

    def get_source(self, fullname: str) -> str:
        return self.files[fullname][1]

    def get_filename(self, fullname: str) -> str:
        return self.files[fullname][0]


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
"""Element types of a task's tensors."""


_INPUT_COPIES = 6
_MOST_SAID = 500
_ALL_COPIES, _ALL_COPIES_ON_GPU = 10, 14
"""Memory of judging, in multiples of the inputs, and of all tensors (measured). On a GPU all processes share it."""


class Problem:
    """A task's reference program, ready to run."""

    def __init__(self, task: TaskSpec, device: str = "cpu", workload: Workload | None = None) -> None:
        """Load the problem and run it once.

        Args:
            task: the problem.
            device: device of its tensors and its reference.
            workload: parameters of its inputs; None: the task's first, if it names any.

        Raises:
            ProblemError: it cannot be used.
        """
        self.device = device
        self.measure: Measure = task.rules.measure
        self.rules = task.rules
        self.stage = stage_of(task, device)
        with self.stage():
            self._module = load_module(task, device)
        self.has_check = callable(vars(self._module).get("check_outputs"))
        """True if the file checks outputs itself, by `check_outputs(arguments…, output)`: answers are right by their
        properties (the factors of a matrix)."""
        self.draws = callable(vars(self._module).get("positions"))
        """True if outputs are drawn at random. `positions(arguments…, outputs)` returns a position in [0, 1) for each
        draw of many calls, uniform for right ones; `data/draws.py` counts."""
        self.trains = True
        """True if the model is in training mode, as KernelBench leaves it."""
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
        """Form of the arguments of a call."""
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
        """Names of the state that a call of the reference changes: statistics of normalisations in training mode."""
        self.call = self._call_form(task.calling)
        """Arguments and results of a call; None: one tensor after the other."""
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
        """For each input, True if the file's `AS_DRAWN` names it: it only has values that `get_inputs` draws."""
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
        state = zip(self.state_names, self.state, strict=True)
        return (
            *(_spec(name, "input", shape, dtype) for name, (shape, dtype) in inputs),
            *(_spec(name, "parameter", tensor.shape, tensor.dtype) for name, tensor in state),
            *self.output_specs,
        )

    def inputs(self, seed: int) -> Tensors:
        """Return the dense tensors of `get_inputs` for the workload and a seed."""
        seed_all(seed)
        with self.stage(), torch.device(self.device):
            given = called("get_inputs()", lambda: _filled(self._module.get_inputs, self._given))
        if not isinstance(given, list | tuple):
            raise ProblemError(
                f"get_inputs() returns {type(given).__name__}; it must return a list of the arguments: tensors, "
                "numbers, or lists, tuples and dicts of them"
            )
        form, found = _taken_apart(tuple(given), "get_inputs()", ("cpu", self.device))
        tensors = tuple(tensor.detach().to(self.device).contiguous() for tensor in found)
        layout = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if self._form is None:
            self._form, self._layout = form, layout
        if layout != self._layout:
            raise ProblemError("get_inputs() returns other shapes or dtypes from one call to the next")
        if form != self._form:
            raise ProblemError("get_inputs() returns other numbers, texts or keys from one call to the next")
        return tensors

    def complaint(self, inputs: Tensors, outputs: Tensors) -> str:
        """Return the objection of the file's `check_outputs`, bounded; empty if there is none.

        It is the problem's own code, and runs here, on the judge's memory.
        """
        given = arguments_of(self.form, inputs, self.device)
        said: object
        with self.stage(), torch.no_grad():
            try:
                result = rebuild(self._output_form, outputs)
                said = called("check_outputs()", lambda: self._module.check_outputs(*given, result))
            except NoMemoryError:
                raise
            except ProblemError as error:
                said = str(error)
        if not isinstance(said, str):
            raise ProblemError(
                f"check_outputs() returns {type(said).__name__}; it must return a text, empty where all is right"
            )
        return " ".join(said.split())[:_MOST_SAID]

    def positions(self, inputs: Tensors, outputs: Sequence[Tensors]) -> dict[str, torch.Tensor]:
        """Return the file's `positions` of the outputs of several calls on the same inputs: (calls, rows) by order."""
        given = arguments_of(self.form, inputs, self.device)
        stacked = rebuild(self._output_form, [torch.stack(parts) for parts in zip(*outputs, strict=True)])
        with self.stage(), torch.no_grad():
            found = called("positions()", lambda: self._module.positions(*given, stacked))
        if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
            raise ProblemError(f"positions() returns {type(found).__name__}; it must return a dict of tensors")
        for name, value in found.items():
            is_table = value.dim() == 2 and len(value) == len(outputs)
            if not is_table or not bool(((value >= 0) & (value <= 1)).all()):
                raise ProblemError(
                    f"positions(): {name!r} must be a tensor of calls x rows with values between 0 and 1"
                )
        return {str(name): value.cpu() for name, value in found.items()}

    def reference(self, inputs: Tensors, state: Tensors, *, wide: bool = False) -> Tensors:
        """Run the reference on copies; `wide`: in float64.

        Raises:
            ProblemError: it fails; with `wide` also if it has no float64 form.
        """
        if wide and self._wide is None:
            self._wide = called("Model in float64", lambda: copy.deepcopy(self._model).double())
        model = self._wide if wide and self._wide is not None else self._model
        put_state(model, state)
        given = tuple(widen(tensor) for tensor in inputs) if wide else inputs
        with self.stage():
            outputs = run_model(model, given, self.device, self.form, wide=wide)
        if wide and any(output.dtype in {torch.float32, torch.float16, torch.bfloat16} for output in outputs):
            raise ProblemError("the reference leaves float64 on its way")
        return outputs

    def gradients(self, inputs: Tensors) -> tuple[torch.Tensor | None, ...]:
        """Return the gradient of the outputs' randomly weighted sum by each input; None: it does not depend on it."""
        put_state(self._model, self.state)
        leaves = [tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in inputs]
        given = arguments_of(self.form, tuple(leaves), self.device)

        def differentiate() -> tuple[torch.Tensor | None, ...]:
            result = called("Model.forward()", lambda: self._model(*given))
            _, parts = flatten(result, lambda value: isinstance(value, torch.Tensor))
            outputs = [part for part in parts if isinstance(part, torch.Tensor) and part.requires_grad]
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            weights = [torch.randn_like(output) for output in outputs]
            found = iter(torch.autograd.grad(outputs, wanted, weights, allow_unused=True))
            return tuple(next(found) if leaf.requires_grad else None for leaf in leaves)

        with self.stage(), torch.enable_grad():
            return called("the gradient of Model.forward()", differentiate)

    @cached_property
    def needs_stage(self) -> bool:
        """True if the reference itself, not only its inputs, names a GPU that does not exist, which slows it down."""
        inputs = self.inputs(seed=0)
        put_state(self._model, self.state)
        reference = Staged(lambda: run_model(self._model, inputs, self.device, self.form), self.stage)
        reference()
        return reference.is_needed

    def _admit(self, inputs: Tensors) -> Form:
        """Run the reference twice and check that it can be judged by. Returns the form of its outputs."""
        before = tuple(tensor.clone() for tensor in inputs)
        with self.stage():
            result = _call(self._model, arguments_of(self.form, inputs, self.device))
            output_form, first = _outputs_of(result, self.device)
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

    def _call_form(self, calling: Calling) -> CallForm | None:
        given, returned = as_structure(self.form), as_structure(self._output_form)
        is_row = isinstance(returned, TensorPlace) or (isinstance(returned, TupleOf | ListOf) and _is_flat(returned))
        if not isinstance(given, TupleOf):
            raise TypeError("the form of arguments is a tuple's")
        if calling == "module" and _is_flat(given) and is_row:
            return None
        return CallForm(calling=calling, arguments=given, outputs=returned, names=tuple(self._argument_names()))

    def _input_names(self) -> Iterator[str]:
        names = self._argument_names()
        for path in paths(self.form):
            index, dot, below = path.partition(".")
            yield f"{names[int(index)]}{dot}{below}"

    def _argument_names(self) -> list[str]:
        """Return the names of `forward`'s arguments; `input3` for one without a name."""
        names = [
            parameter.name
            for parameter in inspect.signature(self._model.forward).parameters.values()
            if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        ]
        given = self.form["items"]
        count = len(given) if isinstance(given, list) else 0
        return [names[index] if index < len(names) else f"input{index}" for index in range(count)]


def needed_bytes(problem: Problem) -> int:
    """Return an upper bound of the memory for judging a candidate."""
    copies = _ALL_COPIES if problem.device == "cpu" else _ALL_COPIES_ON_GPU
    return copies * sum(math.prod(spec.shape) * DTYPES[spec.dtype].itemsize for spec in problem.tensors)


def require_memory(most_bytes: int, device: str = "cpu") -> None:
    """Raise ProblemError if this host or GPU has too little memory, before the kernel kills a process."""
    if device != "cpu":
        torch.cuda.empty_cache()  # torch keeps the memory of freed tensors
    free = _free_bytes() if device == "cpu" else int(torch.cuda.mem_get_info(device)[0])
    if most_bytes > free:
        raise ProblemError(
            f"judging it takes {most_bytes / 2**30:.1f} GiB of memory or more, but {free / 2**30:.1f} GiB are free; "
            "use smaller inputs"
        )


def _free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def run_model(
    model: torch.nn.Module, inputs: Tensors, device: str = "cpu", form: Form | None = None, *, wide: bool = False
) -> Tensors:
    """Call a model and return its outputs' tensors, dense.

    Args:
        model: the reference.
        inputs: tensors among its arguments.
        device: device of the tensors.
        form: form of the arguments; None: one tensor after the other.
        wide: floating-point inputs are in float64, and so is room for outputs.
    """
    result = _call(model, arguments_of(form, inputs, device, wide=wide))
    # This is timed: work around the model would count as the reference's time, to the candidate's advantage.
    outputs = (result,) if isinstance(result, torch.Tensor) else result
    if isinstance(outputs, tuple | list) and all(type(value) is torch.Tensor for value in outputs):
        for value in outputs:
            _admit_tensor("an output of Model.forward()", value, (device,))
        if outputs:
            return tuple(value.detach().contiguous() for value in outputs)
    return _outputs_of(result, device)[1]


def arguments_of(form: Form | None, inputs: Tensors, device: str, *, wide: bool = False) -> tuple[object, ...]:
    """Return the arguments of a call."""
    arguments = inputs if form is None else rebuild(form, inputs, partial(_make_room, device, wide=wide))
    if not isinstance(arguments, tuple):
        raise TypeError("the form of arguments is a tuple's")
    return arguments


def _call(model: torch.nn.Module, arguments: tuple[object, ...]) -> object:
    with torch.no_grad():
        return called("Model.forward()", lambda: model(*arguments))


def _outputs_of(result: object, device: str) -> tuple[Form, Tensors]:
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


def _is_flat(structure: TupleOf | ListOf) -> bool:
    return all(isinstance(item, TensorPlace) for item in structure.items)


def as_structure(form: Form) -> Structure:
    """Return a form as a message."""
    structure: Structure = msgspec.convert(form, Structure)
    return structure


def as_form(structure: Structure) -> Form:
    """Return a message as the form for runners."""
    form: Form = msgspec.to_builtins(structure)
    return form


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
    """Return the output that a tensor on the `meta` device represents."""
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


def state_of(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """List parameters, then buffers, then tensors that modules have as plain attributes, each in module order."""
    plain = [
        (f"{path}.{name}" if path else name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    return [*model.named_parameters(), *model.named_buffers(), *plain]


def put_state(model: torch.nn.Module, state: Sequence[torch.Tensor]) -> None:
    """Copy values into parameters, buffers and other tensors of a model, in the order of `state_of`."""
    with torch.no_grad():
        for (_, own), value in zip(state_of(model), state, strict=True):
            own.copy_(value)


def share_parameters(model: torch.nn.Module, state: Sequence[torch.Tensor]) -> None:
    """Let a model use these tensors as parameters without copying; buffers, which it may change, are copied.

    In eval mode statistics of normalisations are shared, too: they differ between calls, and are only read.
    """
    put_state(model, state)
    count = sum(1 for _ in model.parameters())
    for index, ((name, own), value) in enumerate(zip(state_of(model), state, strict=True)):
        if index < count or (not model.training and is_statistic(name)):
            own.data = value


def is_statistic(name: str) -> bool:
    """Return True for the names of statistics in torch's normalisations."""
    return name.rpartition(".")[2] in {"running_mean", "running_var"}


def say_changed(names: Sequence[str]) -> str:
    """Return the note that the reference changes its state, and that candidates' state is not compared."""
    return f"the reference changes {', '.join(names)} in each call; what a candidate leaves there is not compared"


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if two dense tensors of one shape and dtype have the same bits."""
    return torch.equal(left.view(-1).view(torch.uint8), right.view(-1).view(torch.uint8))


def _agree(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype in LOW_BITS:
        return not bool(wrong_steps(steps_apart(one, other)).any())
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def all_close(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Return True if two runs agree up to the order of sums."""
    pairs = zip(left, right, strict=True)
    # Bits first: comparing with a tolerance takes several times the tensor's memory.
    return all(same_bits(one, other) or _agree(one, other) for one, other in pairs)


def load_model(task: TaskSpec, device: str = "cpu", workload: Workload | None = None) -> torch.nn.Module:
    """Load a problem only for its model, for the baseline worker; see `Problem`."""
    with stage_of(task, device)():
        return _build(load_module(task, device), task, device, _given_by(task, workload))[1]


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a floating-point tensor in float64, others unchanged."""
    return tensor.double() if tensor.is_floating_point() else tensor


def _seed_of(task: TaskSpec) -> int:
    """Return the seed of a task's model, which gives the same parameters in every run."""
    return int(task.task_id[:12], 16)


def _given_by(task: TaskSpec, workload: Workload | None) -> dict[str, Dimension]:
    chosen = workload or next(iter(task.shown), None)
    return chosen.dimensions if chosen else {}


def _filled(function: Callable[..., _T], given: dict[str, Dimension]) -> _T:
    if not given:
        return function()
    parameters = inspect.signature(function).parameters
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        return function(**given)
    return function(**{name: value for name, value in given.items() if name in parameters})


def _build(
    module: ModuleType, task: TaskSpec, device: str, given: dict[str, Dimension]
) -> tuple[Sequence[object], torch.nn.Module]:
    """Return the model's arguments, and the model; the same arguments give the same parameters."""
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
    return name == of or name.startswith(f"{of}.")


def _output_names(form: Form) -> Iterator[str]:
    for path in paths(form):
        yield f"output{path}" if path[:1].isdecimal() else path


def _spec(name: str, role: _Role, shape: torch.Size, dtype: torch.dtype) -> TensorSpec:
    return TensorSpec(name=name, role=role, shape=tuple(shape), dtype=str(dtype).removeprefix("torch."))
