"""FlashInfer-Bench's JSON: `Definition`, `Workload`, `Solution` and `Trace`, as structs of ours.

The format is that of github.com/flashinfer-ai/flashinfer-bench (40e6ca78, April 2026; `docs/flashinfer-trace`). What it
refuses is refused here; fields that it does not know are passed over, as it does.

- `parse_definition(text: bytes, shown: str) -> Definition`, `parse_solution`, `parse_trace`: raise ConfigError
"""

from __future__ import annotations

import ast
import math
from pathlib import PurePosixPath
from typing import Literal, TypeAlias, TypeVar

import msgspec

from messages.base import ConfigError

Author: TypeAlias = str
_T = TypeVar("_T", bound=msgspec.Struct)

DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float4_e2m1",
    "int64",
    "int32",
    "int16",
    "int8",
    "bool",
)
LOW_BITS = frozenset(("float8_e4m3fn", "float8_e5m2", "float4_e2m1"))
FLOATING = frozenset(name for name in DTYPES if name.startswith(("float", "bfloat")))


class AxisConst(msgspec.Struct, frozen=True, kw_only=True, tag="const"):
    """A dimension that is the same in all workloads."""

    value: int
    description: str | None = None


class AxisVar(msgspec.Struct, frozen=True, kw_only=True, tag="var"):
    """A dimension that each workload says."""

    description: str | None = None


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """An input or an output."""

    shape: tuple[str, ...] | None
    """Names of axes; empty: a tensor of no dimensions; null: a number of Python's."""
    dtype: str
    description: str | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be computed: axes, inputs and outputs in call order, and a reference in Python."""

    name: str
    op_type: str
    axes: dict[str, AxisConst | AxisVar]
    inputs: dict[str, Argument]
    outputs: dict[str, Argument]
    reference: str
    """Source text with a function `run` at its top level."""
    tags: tuple[str, ...] = ()
    description: str | None = None
    constraints: tuple[str, ...] = ()
    """Expressions of Python over axes and inputs that hold for every workload."""

    @property
    def const_axes(self) -> dict[str, int]:
        """Return the axes that are the same in all workloads, with their values."""
        return {name: axis.value for name, axis in self.axes.items() if isinstance(axis, AxisConst)}

    @property
    def var_axes(self) -> tuple[str, ...]:
        """Return the axes that workloads say."""
        return tuple(name for name, axis in self.axes.items() if isinstance(axis, AxisVar))


class RandomInput(msgspec.Struct, frozen=True, kw_only=True, tag="random"):
    """Drawn for each call."""


class ScalarInput(msgspec.Struct, frozen=True, kw_only=True, tag="scalar"):
    """A number that is part of the workload."""

    value: bool | int | float


class SafetensorsInput(msgspec.Struct, frozen=True, kw_only=True, tag="safetensors"):
    """A tensor that was recorded."""

    path: str
    """Of the file, relative to the folder of the set."""
    tensor_key: str


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One concrete shape of a definition."""

    axes: dict[str, int]
    inputs: dict[str, RandomInput | ScalarInput | SafetensorsInput]
    uuid: str


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a solution."""

    path: str
    """Relative, without `..`."""
    content: str


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a solution is built and called."""

    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    target_hardware: tuple[str, ...]
    entry_point: str
    """`FILE::FUNCTION`."""
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = True
    """Whether outputs are passed behind the inputs and written to, instead of being returned."""
    binding: Literal["tvm-ffi", "torch"] | None = None
    """Of C++ and CUDA; null: tvm-ffi."""


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """A program that does what a definition says."""

    name: str
    definition: str
    author: Author
    spec: BuildSpec
    sources: tuple[Source, ...]
    description: str | None = None


class Correctness(msgspec.Struct, frozen=True, kw_only=True):
    """How far outputs lay from the reference's; infinities and NaNs are written as words."""

    max_relative_error: float | str = 0.0
    max_absolute_error: float | str = 0.0
    extra: dict[str, float | str] | None = None


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call takes."""

    latency_ms: float = 0.0
    reference_latency_ms: float = 0.0
    speedup_factor: float = 0.0
    """Reference latency / latency."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    hardware: str
    libs: dict[str, str] = msgspec.field(default_factory=dict)


Status: TypeAlias = Literal[
    "PASSED",
    "INCORRECT_SHAPE",
    "INCORRECT_NUMERICAL",
    "INCORRECT_DTYPE",
    "RUNTIME_ERROR",
    "COMPILE_ERROR",
    "TIMEOUT",
]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """What a solution was worth on a workload."""

    status: Status
    environment: Environment
    timestamp: str
    """ISO 8601."""
    log: str = ""
    correctness: Correctness | None = None
    """Of PASSED and INCORRECT_NUMERICAL, and of no other."""
    performance: Performance | None = None
    """Of PASSED, and of no other."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A workload, and what a solution was worth on it; without solution and evaluation the workload alone."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None


def parse_definition(text: bytes, shown: str) -> Definition:
    """Return the definition of a JSON text that keeps the format's rules.

    Args:
        text: the file's.
        shown: how to call it in messages.

    Raises:
        ConfigError: it breaks one.
    """
    definition = _decoded(text, Definition, f"definition {shown!r}")
    for problem in _faults_of(definition):
        raise ConfigError(f"definition {shown!r}: {problem}")
    return definition


def parse_solution(text: bytes, shown: str) -> Solution:
    """Return the solution of a JSON text that keeps the format's rules; arguments as `parse_definition`.

    Raises:
        ConfigError: it breaks one.
    """
    solution = _decoded(text, Solution, f"solution {shown!r}")
    paths = [source.path for source in solution.sources]
    entry_file, separator, function = solution.spec.entry_point.partition("::")
    if not separator or not function or "::" in function:
        raise ConfigError(
            f"solution {shown!r}: entry point {solution.spec.entry_point!r} is not of the form FILE::FUNCTION"
        )
    if entry_file not in paths:
        raise ConfigError(f"solution {shown!r}: there is no file {entry_file!r} among its sources")
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(f"solution {shown!r} has the file {path!r} twice")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ConfigError(f"solution {shown!r}: {path!r} must be a relative path without '..'")
    return solution


def parse_trace(text: bytes, shown: str) -> Trace:
    """Return the trace of one line; arguments as `parse_definition`.

    Raises:
        ConfigError: it is none.
    """
    trace = _decoded(text, Trace, f"trace {shown!r}")
    if (trace.solution is None) != (trace.evaluation is None):
        raise ConfigError(f"trace {shown!r}: solution and evaluation come together or not at all")
    return trace


def number_or_word(value: float) -> float | str:
    """Return a number as the format writes it: what JSON has no number for is a word."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _decoded(text: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"{what}: {error}") from error


def _faults_of(definition: Definition) -> list[str]:
    """Say which rules a definition breaks."""
    return [
        *_naming_faults(definition),
        *_reference_faults(definition.reference),
        *(
            f"{name!r} has the axis {axis!r}, which is not among its axes"
            for name, argument in (*definition.inputs.items(), *definition.outputs.items())
            for axis in argument.shape or ()
            if axis not in definition.axes
        ),
        *(
            f"{name!r} has the dtype {argument.dtype!r} (there are: {', '.join(DTYPES)})"
            for name, argument in (*definition.inputs.items(), *definition.outputs.items())
            if argument.dtype not in DTYPES
        ),
    ]


def _naming_faults(definition: Definition) -> list[str]:
    faults: list[str] = []
    if not definition.name or not definition.inputs or not definition.outputs:
        faults.append("it needs a name, inputs and outputs")
    if both := sorted(set(definition.inputs) & set(definition.outputs)):
        faults.append(f"{both[0]!r} is an input and an output")
    if odd := next((name for name in (*definition.axes, *definition.inputs) if not name.isidentifier()), None):
        faults.append(f"{odd!r} is no identifier")
    if double := sorted(set(definition.axes) & set(definition.inputs)):
        faults.append(f"{double[0]!r} is an axis and an input")
    return faults


def _reference_faults(reference: str) -> list[str]:
    try:
        tree = ast.parse(reference)
    except (SyntaxError, ValueError) as error:
        return [f"its reference is no Python: {error}"]
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        return ["its reference has no function 'run' at its top level"]
    return []
