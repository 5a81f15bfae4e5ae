"""Takes the inputs of a TritonBench problem from its test: what the test calls the gold's functions with.

The judge runs the test with recorders in the places of those functions. Once, at first, they call the gold, so that it
is known which arguments it writes to; afterwards they give what it gave then, so that drawing inputs under another seed
costs no kernel. The recorded calls are the inputs, a nest of tensors and constants; making them with the gold's
functions (`replay.py`) is the reference.

What is left out: calls with something that is no tensor, number, text, dtype or device (modules, callables), calls that
raise, calls that neither return nor write a tensor; and whatever the test does besides: autograd's backward passes, its
own comparisons. Memory that the test leaves uninitialised holds zeros here; elements of the gold's own that it does not
write (they differ with what the memory held) are not compared. Floating values that the test writes out are made
smaller by up to a tenth, anew for each draw, unless the gold fails then: else a constant answer would be right.

Imports torch; the judge's process imports it, through the problem file that `reading.py` writes.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import random
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from evaluators.judge.reference.problem import interpret_triton, redirected
from evaluators.runners.structure import StructureError, flatten
from evaluators.tasks.tritonbench.recording import (
    Call,
    EnoughError,
    Filled,
    Holder,
    Recorded,
    Recorder,
    Run,
    copied_calls,
    same_bytes,
    tensors_in,
)
from evaluators.tasks.tritonbench.replay import make_calls
from evaluators.tasks.tritonbench.sizing import capped
from evaluators.tasks.tritonbench.varying import unchanged, varied

TEST, SMALL_TEST = -1, -2
"""In the place of a size: the test's calls, and those of a test with smaller sizes (`sizing.py`)."""
_FIRST_SEED = 42
_PROBES = (1, 2)
"""Seeds under which the test is run to see whether its calls look the same."""


class UntraceableError(Exception):
    """A problem's test calls nothing that can be recorded; the text says why."""


class Trace:
    """A problem's gold and its test."""

    def __init__(
        self, test: str, functions: Sequence[str], *, seed: int | None = None, perf: str = "", gold: str = "gold"
    ) -> None:
        """Prepare; nothing is imported before the first call.

        Args:
            test: text that calls the gold's functions at its end.
            functions: their names, `Class.apply` for an autograd function's.
            seed: given to torch before every call, for functions that draw; null: they do not.
            perf: text that defines `performance_metrics`, which makes the inputs that are timed.
            gold: name of the module with the gold.
        """
        self._test, self._perf, self._names, self._seed, self._gold = test, perf, tuple(functions), seed, gold
        self._size = TEST
        self._device = "cpu"
        self._gold_module: ModuleType | None = None
        self._is_begun = False
        self._recorded: list[Recorded] = []
        self._frozen: list[Call] | None = None
        """The calls of the first run, where others look different from seed to seed; null: they do not."""
        self._literals: frozenset[int] = frozenset()
        """Floating tensors, by number, that are the same under every seed: the test writes them out."""
        self._executes = False
        """Whether the gold must be called each time, for the test to go on."""

    def calls(self, size: int = TEST) -> list[Call]:
        """Return the calls that the test makes under torch's seed as it is, on torch's default device.

        Args:
            size: `TEST`, `SMALL_TEST`, or the number of a timed size, for the one call on that. The same every time.

        Raises:
            UntraceableError: there is none that can be recorded.
        """
        if not self._is_begun:
            self._device, self._size = str(torch.get_default_device()), size
            self._begin()
            self._is_begun = True
        calls = self._drawn() if self._frozen is None else copied_calls(self._frozen)
        return varied(calls, self._literals)

    def run(self, calls: Sequence[Call]) -> list[torch.Tensor]:
        """Make the calls with the gold's functions; arguments stay as they are."""
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
        """Run the test once with the gold, and see whether it looks the same under other seeds."""
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
        """Say whether the gold can do with these calls: it does not raise, and returns and writes as it did before."""
        given = copied_calls(calls)
        try:
            with torch.no_grad():
                outputs = self.run(given)
        except Exception:  # noqa: BLE001 - the problem's code may raise whatever it likes
            return False
        # Multiplied by one, an argument did not seem to be written to.
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
        """Run the test; with the gold, or with what it gave then."""
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
        # The test's own words say what lies where; large inputs are made where they are needed.
        device = torch.device("cpu" if self._size < 0 else self._device)
        with redirected(self._device), device, Filled(0), contextlib.redirect_stdout(io.StringIO()):
            try:
                self._go_through(namespace)
            except EnoughError:
                pass
            except Exception:
                # What it compares, or differentiates, is not what the recorders gave.
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
    """Return what stands for upstream's base class: it keeps the inputs of one size, and makes none after them."""

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
            """Be begun anew."""

        def append(self, value: object) -> None:
            self._count += 1
            if self._count > size:
                self.found = value
                raise EnoughError

    return Metrics


class TracedModel(torch.nn.Module):
    """A problem's reference: the recorded calls, made with the gold's functions."""

    def __init__(self, trace: Trace, *, has_wide_form: bool) -> None:
        """Make it.

        Args:
            trace: of the problem; shared with copies.
            has_wide_form: whether it may be called with float64 instead: not where kernels are written for a dtype.
        """
        super().__init__()
        self._trace, self._has_wide_form = trace, has_wide_form

    def forward(self, calls: list[Call]) -> list[torch.Tensor]:
        """Return what the calls return and write."""
        return self._trace.run(calls)

    def __deepcopy__(self, memo: dict[int, object]) -> TracedModel:
        """Return another one of the same trace."""
        return TracedModel(self._trace, has_wide_form=self._has_wide_form)

    def double(self) -> TracedModel:
        """Return itself.

        Raises:
            TypeError: the gold is right in its own dtypes only.
        """
        if not self._has_wide_form:
            raise TypeError("the gold's kernels are written for their own dtypes")
        return self


@contextlib.contextmanager
def _kept_chance(device: str) -> Iterator[None]:
    """Leave the generators as they were."""
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
    """Return what the calls look like: constants, and shapes and dtypes of tensors."""
    try:
        form, tensors = flatten(list(calls), lambda value: isinstance(value, torch.Tensor))
    except StructureError as error:
        raise UntraceableError(str(error)) from error
    return form, [(tensor.shape, tensor.dtype) for tensor in tensors if isinstance(tensor, torch.Tensor)]
