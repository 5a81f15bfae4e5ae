"""Takes the inputs of a TritonBench problem from its test: the arguments of its calls of the gold.

The judge runs the test with recorders in place of those functions. The first time they call the gold, to find the
arguments that it writes to; afterwards they return the same result, so that drawing inputs under another seed runs no
kernel. The recorded calls are the inputs, nested tensors and constants; making them with the gold's functions
(`replay.py`) is the reference.

Left out are calls with arguments other than tensors, numbers, strings, dtypes or devices (modules, callables), calls
that raise, and calls that neither return nor write a tensor; and other work of the test: autograd's backward passes,
its own comparisons. Memory that the test leaves uninitialised is zero here; elements that the gold itself does not
write (they differ with the memory's content) are not compared. Floating-point values written in the test are reduced by
up to a tenth, differently for each draw, unless the gold fails then: otherwise a constant answer would be right.

Imports torch; the judge's process imports it, through the problem file that `reading.py` writes.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from evaluators.judge.reference.problem import interpret_triton, redirected
from evaluators.runners.structure import StructureError, flatten, rebuild
from evaluators.tasks.tritonbench.replay import make_calls

TEST, SMALL_TEST = -1, -2
"""Values in place of a size: the test's calls, and those of a test with smaller sizes (`sizing.py`)."""
_FIRST_SEED = 42
_PROBES = (1, 2)
"""Seeds under which the test is run to compare the form of its calls."""


class UntraceableError(Exception):
    """A problem's test makes no call that can be recorded; the text gives the reason."""


class Trace:
    """A problem's gold and its test."""

    def __init__(
        self, test: str, functions: Sequence[str], *, seed: int | None = None, perf: str = "", gold: str = "gold"
    ) -> None:
        """Prepare; nothing is imported before the first call.

        Args:
            test: code that calls the gold's functions at its end.
            functions: names of those functions, `Class.apply` for an autograd function's.
            seed: set in torch before every call, for functions that draw; null: they do not draw.
            perf: code that defines `performance_metrics`, which makes the timed inputs.
            gold: name of the module with the gold.
        """
        self._test, self._perf, self._names, self._seed, self._gold = test, perf, tuple(functions), seed, gold
        self._size = TEST
        self._device = "cpu"
        self._gold_module: ModuleType | None = None
        self._is_begun = False
        self._recorded: list[Recorded] = []
        self._frozen: list[Call] | None = None
        """The calls of the first run, if their form depends on the seed; null: it does not."""
        self._literals: frozenset[int] = frozenset()
        """Numbers of floating-point tensors that are the same under every seed: literals in the test."""
        self._executes = False
        """True if the gold must be called each time for the test to continue."""

    def calls(self, size: int = TEST) -> list[Call]:
        """Return the calls that the test makes under torch's current seed, on torch's default device.

        Args:
            size: `TEST`, `SMALL_TEST`, or the number of a timed size, for the one call on it. The same every time.

        Raises:
            UntraceableError: none can be recorded.
        """
        if not self._is_begun:
            self._device, self._size = str(torch.get_default_device()), size
            self._begin()
            self._is_begun = True
        calls = self._drawn() if self._frozen is None else copied_calls(self._frozen)
        return varied(calls, self._literals)

    def run(self, calls: Sequence[Call]) -> list[torch.Tensor]:
        """Make the calls with the gold's functions; the arguments are not changed."""
        if self._gold_module is None:
            tensor = next(tensors_in(calls), None)
            self._device = "cpu" if tensor is None else str(tensor.device)
        module = self._imported()
        with redirected(self._device):
            outputs: list[torch.Tensor] = make_calls(  # type: ignore[no-untyped-call]
                calls, {name: _found(module, name) for name in self._names}
            )
        return outputs

    def _begin(self) -> None:
        """Run the test once with the gold, and compare its form under other seeds."""
        with _kept_chance(self._device):
            _seed(_FIRST_SEED)
            first = self._traced(is_first=True)
            if not first:
                raise UntraceableError(
                    "its test makes no call that can be judged by tensors: it launches kernels itself, or gives modules"
                )
            others = [self._seen(probe) for probe in _PROBES]
            if any(_form_of(other) != _form_of(first) for other in others):
                self._frozen, others = first, [first]
            literals = unchanged(first, others)
            if literals and self._stands(varied(first, literals)):
                self._literals = literals

    def _imported(self) -> ModuleType:
        """Return the gold; its kernels are interpreted on a CPU."""
        if self._gold_module is None:
            if self._device == "cpu":
                interpret_triton()
            with redirected(self._device):
                self._gold_module = importlib.import_module(self._gold)
        return self._gold_module

    def _seen(self, seed: int) -> list[Call]:
        _seed(seed)
        return self._drawn()

    def _stands(self, calls: Sequence[Call]) -> bool:
        """Return True if the gold accepts these calls: it does not raise, and returns and writes as before."""
        given = copied_calls(calls)
        try:
            with torch.no_grad():
                outputs = self.run(given)
        except Exception:  # noqa: BLE001 - the problem's code may raise whatever it likes
            return False
        # Multiplied by one, an argument would not seem to be written to.
        return same_bytes(given, list(calls)) and all(bool(output.isfinite().all()) for output in outputs)

    def _drawn(self) -> list[Call]:
        if not self._executes:
            state = torch.get_rng_state()
            calls = self._traced(is_first=False)
            if len(calls) == sum(one.is_used for one in self._recorded):
                return calls
            self._executes = True
            torch.set_rng_state(state)
        return self._traced(is_first=True)

    def _traced(self, *, is_first: bool) -> list[Call]:
        """Run the test, with the gold or with its recorded results."""
        run = Run(self._recorded, self._seed, is_first=is_first)
        module = self._imported()
        namespace: dict[str, object] = {**vars(module), "__name__": self._gold}
        for name in self._names:
            holder, _, attribute = name.rpartition(".")
            function = _found(module, name)
            recorder = Recorder(
                function, lambda *given, _name=name, _of=function, **named: run.called(_name, _of, given, named)
            )
            namespace[holder or name] = Holder(_found(module, holder), attribute, recorder) if holder else recorder
        random.seed(_FIRST_SEED)
        # The test itself chooses the device of its inputs; large inputs are made where they are needed.
        device = torch.device("cpu" if self._size < 0 else self._device)
        with redirected(self._device), device, Filled(0), contextlib.redirect_stdout(io.StringIO()):
            try:
                self._go_through(namespace)
            except EnoughError:
                pass
            except Exception:
                # Values that it compares or differentiates are not the recorders'.
                if not run.calls:
                    raise
        return run.calls

    def _go_through(self, namespace: dict[str, object]) -> None:
        if self._size < 0:
            text = self._test if self._size == TEST else capped(self._test)
            exec(compile(text, "gold_test.py", "exec"), namespace)  # noqa: S102 - the problem's own test
            return
        namespace["Performance_Metrics"] = _metrics_of(self._size)
        exec(compile(self._perf, "gold_perf.py", "exec"), namespace)  # noqa: S102 - the problem's own
        kind: Any = namespace["performance_metrics"]
        metrics = kind()
        with contextlib.suppress(EnoughError):
            metrics.get_input_tensors()
        if metrics.found is None:
            raise UntraceableError(f"it makes no inputs of size {self._size}")
        metrics.call_op(metrics.to_cuda(metrics.found))


def _metrics_of(size: int) -> type:
    """Return a replacement for upstream's base class: it keeps the inputs of one size, and makes none after them."""

    class Metrics:
        found: object = None

        def __init__(self, op_name: str, dtype: object = None, is_backward: object = False, **kwargs: object) -> None:
            self.op_name, self.dtype, self.is_backward, self.kwargs = op_name, dtype, is_backward, kwargs
            self._count = 0

        @property
        def input_tensors(self) -> Metrics:
            return self

        @input_tensors.setter
        def input_tensors(self, value: object) -> None:
            """Stop here: the inputs of the size are complete."""

        def append(self, value: object) -> None:
            self._count += 1
            if self._count > size:
                self.found = value
                raise EnoughError

    return Metrics


class TracedModel(torch.nn.Module):
    """A problem's reference: the recorded calls, made with the gold's functions."""

    def __init__(self, trace: Trace, *, has_wide_form: bool) -> None:
        """Begin.

        Args:
            trace: trace of the problem; shared with copies.
            has_wide_form: True if it may be called in float64; kernels written for a dtype may not.
        """
        super().__init__()
        self._trace, self._has_wide_form = trace, has_wide_form

    def forward(self, calls: list[Call]) -> list[torch.Tensor]:
        """Return what the calls return and write."""
        return self._trace.run(calls)

    def __deepcopy__(self, memo: dict[int, object]) -> TracedModel:
        """Return another model of the same trace."""
        return TracedModel(self._trace, has_wide_form=self._has_wide_form)

    def double(self) -> TracedModel:
        """Return itself.

        Raises:
            TypeError: the gold is correct in its own dtypes only.
        """
        if not self._has_wide_form:
            raise TypeError("the gold's kernels are written for their own dtypes")
        return self


@contextlib.contextmanager
def _kept_chance(device: str) -> Iterator[None]:
    """Restore the random generators afterwards."""
    plain, own = random.getstate(), torch.get_rng_state()
    on_gpu = None if device == "cpu" else torch.cuda.get_rng_state(device)
    try:
        yield
    finally:
        random.setstate(plain)
        torch.set_rng_state(own)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu, device)


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)


def _found(module: object, name: str) -> Any:
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _form_of(calls: Sequence[Call]) -> object:
    """Return the form of calls: constants, and shapes and dtypes of tensors."""
    try:
        form, tensors = flatten(list(calls), lambda value: isinstance(value, torch.Tensor))
    except StructureError as error:
        raise UntraceableError(str(error)) from error
    return form, [(tensor.shape, tensor.dtype) for tensor in tensors if isinstance(tensor, torch.Tensor)]


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
    """All calls are recorded, so the test can end. Not an Exception, so that the test does not catch it."""


class Recorded:
    """One call of the first run."""

    def __init__(self) -> None:
        self.is_used = False
        self.writes: tuple[int | str, ...] = ()
        self.unwritten: list[list[object]] = []
        """Number of an output of the call, and the elements of it that the gold does not write."""
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
        """Write to the arguments what the gold wrote to them, as far as they still fit."""
        for place, then in zip(known.writes, known.written, strict=True):
            now = named.get(place) if isinstance(place, str) else given[place]
            for target, value in zip(tensors_in(now), tensors_in(then), strict=False):
                if target.shape == value.shape:
                    with torch.no_grad():
                        target.copy_(value)


class Recorder:
    """Replaces one of the gold's functions."""

    def __init__(self, function: object, called: Callable[..., object]) -> None:
        self._function, self._called = function, called

    def __call__(self, *given: object, **named: object) -> object:
        """Record and answer a call."""
        return self._called(*given, **named)

    def __getattr__(self, name: str) -> object:
        return getattr(self._function, name)


class Holder:
    """Replaces a class of the gold with one recorded function."""

    def __init__(self, holder: object, name: str, recorder: Recorder) -> None:
        self._holder, self._name, self._recorder = holder, name, recorder

    def __getattr__(self, name: str) -> object:
        return self._recorder if name == self._name else getattr(self._holder, name)


class Filled(TorchFunctionMode):
    """Fills uninitialised memory, so that its content does not depend on chance."""

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
    """Return a call as plain data; None if a part has no such form."""
    try:
        arguments = tuple(_encoded(value) for value in given)
        options = {key: _encoded(value) for key, value in named.items()}
    except TypeError:
        return None
    return {"function": name, "arguments": arguments, "options": options, "writes": (), "unwritten": [], "seed": seed}


def _encoded(value: object) -> object:
    """Return a value in the form that `replay.py` reads."""
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
    """Return nested values with copies of the tensors; everything else is shared."""
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
    """Return calls with copies of their tensors."""
    return [{key: copied(value) for key, value in call.items()} for call in calls]


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Yield the non-empty tensors in nested values, and numbers as tensors."""
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
    """Return True if an argument's tensors are equal byte by byte."""
    pairs = zip(tensors_in(now), tensors_in(then), strict=False)
    return all(_bytes_of(one).equal(_bytes_of(other)) for one, other in pairs)


def _differences(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> list[list[object]]:
    """Return the differences of two runs beyond the order of sums: number of the output, and a mask."""
    found: list[list[object]] = []
    for place, (one, other) in enumerate(zip(ones, others, strict=False)):
        if one.shape == other.shape and one.dtype == other.dtype:
            mask = ~torch.isclose(one.detach().to(other.device), other, rtol=1e-2, atol=1e-4, equal_nan=True)
            if bool(mask.any()):
                found.append([place, mask])
    return found


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().resolve_conj().contiguous().view(-1).view(torch.uint8)


_SHRINKAGE = 0.1


def varied(calls: list[Call], literals: frozenset[int]) -> list[Call]:
    """Return calls in which each value of some tensors is reduced by up to a tenth: signs and domains stay."""
    if not literals:
        return calls
    form, tensors = flatten(calls, lambda value: isinstance(value, torch.Tensor))
    varied = [_shrunk(tensor) if place in literals else tensor for place, tensor in enumerate(tensors)]
    found: list[Call] = rebuild(form, varied)  # type: ignore[assignment]
    return found


def _shrunk(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return value
    factor = 1.0 - _SHRINKAGE * torch.rand(value.shape, device=value.device)
    if value.dim() > 1 and value.shape[-1] == value.shape[-2] and torch.equal(value, value.mT):
        factor = (factor + factor.mT) / 2
    return value * factor.to(value.dtype)


def unchanged(first: list[Call], others: Sequence[list[Call]]) -> frozenset[int]:
    """Return the indices of floating-point tensors with identical contents in all of these calls."""
    seen = [flatten(calls, lambda value: isinstance(value, torch.Tensor))[1] for calls in (first, *others)]
    return frozenset(
        place
        for place, (one, *rest) in enumerate(zip(*seen, strict=True))
        if isinstance(one, torch.Tensor) and one.is_floating_point() and all(same_bytes(one, other) for other in rest)
    )


MOST = 128
"""Blocks of kernels are seldom larger, and some golds read past the end of anything smaller than a block."""
_NO_SIZES = ("seed", "block", "num_", "group", "stage", "warp", "dtype", "device")


def capped(text: str, most: int = MOST) -> str:
    """Return a test with sizes of at most `most`."""
    return ast.unparse(_Capper(most).visit(ast.parse(text))) + "\n"


class _Capper(ast.NodeTransformer):
    def __init__(self, most: int) -> None:
        self._most = most

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Cap a whole number; odd ones stay odd."""
        value = node.value
        if type(value) is int and value > self._most:
            return ast.copy_location(ast.Constant(self._most - value % 2), node)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Keep options that are not sizes."""
        return node if _is_no_size(node.arg or "") else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Keep seeds of generators."""
        return node if _is_no_size(ast.unparse(node.func)) else self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Keep variables with names that are not sizes'."""
        match node.targets:
            case [ast.Name(id=name)] if _is_no_size(name):
                return node
            case _:
                return self.generic_visit(node)


def _is_no_size(name: str) -> bool:
    return any(word in name.lower() for word in _NO_SIZES)
