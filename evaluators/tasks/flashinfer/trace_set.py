"""FlashInfer-Bench's folder of definitions, workloads, solutions and traces (a TraceSet), read and checked.

- Formats: `Definition`, `Workload`, `Solution`, `Trace`, with `parse_definition` and `parse_solution`
- Constraints of a definition: `holds`, `last_value_of`, `said_axis`
- Files: `find_root`, `read_definition`, `read_workloads`, `read_traces`, `append_traces`
- Recorded tensors: `recorded_inputs`
"""

from __future__ import annotations

import ast
import base64
import difflib
import importlib
import math
import operator
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
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
    """A dimension with the same size in all workloads."""

    value: int
    description: str | None = None


class AxisVar(msgspec.Struct, frozen=True, kw_only=True, tag="var"):
    """A dimension with a size that each workload gives."""

    description: str | None = None


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """An input or an output."""

    shape: tuple[str, ...] | None
    """Names of axes; empty: a tensor without dimensions; null: a Python number."""
    dtype: str
    description: str | None = None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A computation: axes, inputs and outputs in call order, and a reference in Python."""

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
    """Python expressions over axes and inputs that are true for every workload."""

    @property
    def const_axes(self) -> dict[str, int]:
        """Return the axes with the same size in all workloads, with their sizes."""
        return {name: axis.value for name, axis in self.axes.items() if isinstance(axis, AxisConst)}

    @property
    def var_axes(self) -> tuple[str, ...]:
        """Return the axes with sizes that workloads give."""
        return tuple(name for name, axis in self.axes.items() if isinstance(axis, AxisVar))


class RandomInput(msgspec.Struct, frozen=True, kw_only=True, tag="random"):
    """Drawn for each call."""


class ScalarInput(msgspec.Struct, frozen=True, kw_only=True, tag="scalar"):
    """A number that is part of the workload."""

    value: bool | int | float


class SafetensorsInput(msgspec.Struct, frozen=True, kw_only=True, tag="safetensors"):
    """A tensor that was recorded."""

    path: str
    """Path of the file, relative to the folder of the set."""
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
    """True if outputs are passed after the inputs and written to, instead of returned."""
    binding: Literal["tvm-ffi", "torch"] | None = None
    """Binding of C++ and CUDA; null: tvm-ffi."""


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """A program that does what a definition says."""

    name: str
    definition: str
    author: Author
    spec: BuildSpec
    sources: tuple[Source, ...]
    description: str | None = None


class Correctness(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of the outputs relative to the reference's; infinities and NaNs are written as words."""

    max_relative_error: float | str = 0.0
    max_absolute_error: float | str = 0.0
    extra: dict[str, float | str] | None = None


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """Latencies of a call."""

    latency_ms: float = 0.0
    reference_latency_ms: float = 0.0
    speedup_factor: float = 0.0
    """Reference latency / latency."""


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Hardware and software of a measurement."""

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
    """Result of a solution on a workload."""

    status: Status
    environment: Environment
    timestamp: str
    """ISO 8601."""
    log: str = ""
    correctness: Correctness | None = None
    """Only for PASSED and INCORRECT_NUMERICAL."""
    performance: Performance | None = None
    """Only for PASSED."""


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """A workload with the evaluation of a solution; without solution and evaluation only the workload."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None


def parse_definition(text: bytes, shown: str) -> Definition:
    """Return the definition in a JSON text, checked against the format's rules.

    Args:
        text: text of the file.
        shown: name of the file in messages.

    Raises:
        ConfigError: it breaks a rule.
    """
    definition = _decoded(text, Definition, f"definition {shown!r}")
    for problem in _faults_of(definition):
        raise ConfigError(f"definition {shown!r}: {problem}")
    return definition


def parse_solution(text: bytes, shown: str) -> Solution:
    """Return the solution in a JSON text, checked against the format's rules; arguments as `parse_definition`.

    Raises:
        ConfigError: it breaks a rule.
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
        ConfigError: it is not a trace.
    """
    trace = _decoded(text, Trace, f"trace {shown!r}")
    if (trace.solution is None) != (trace.evaluation is None):
        raise ConfigError(f"trace {shown!r}: solution and evaluation come together or not at all")
    return trace


def number_or_word(value: float) -> float | str:
    """Return a number in the format's form: a word for numbers that JSON lacks."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _decoded(text: bytes, kind: type[_T], what: str) -> _T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigError(f"{what}: {error}") from error


def _faults_of(definition: Definition) -> list[str]:
    """Return the rules that a definition breaks."""
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


_MOST = 1 << 62
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"min": min, "max": max}


class KnownTensor(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about an input."""

    shape: tuple[int, ...]
    values: tuple[int, ...] | None = None
    """Content of an integer input of one dimension; null: it is drawn for each call."""


Known: TypeAlias = int | KnownTensor
_Value: TypeAlias = bool | int | tuple[int, ...] | KnownTensor


class Unknown(Exception):  # noqa: N818 - no error: the question is open
    """A constraint depends on an axis or a content that is not known; the text is its name."""


def holds(constraint: str, known: Mapping[str, Known]) -> bool:
    """Return True if a constraint is satisfied.

    Raises:
        ConfigError: it is not a supported expression.
        Unknown: a name in it, or the content of an input, is not known.
    """
    value = _value(_parsed(constraint), known, constraint)
    if isinstance(value, KnownTensor | tuple):
        raise ConfigError(f"constraint {constraint!r} is neither true nor false")
    return bool(value)


def last_value_of(constraint: str) -> tuple[str, str] | None:
    """Return axis and input of a constraint of the form `AXIS == INPUT[-1].item()`, in either order."""
    match _parsed(constraint):
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            for one, other in ((left, right), (right, left)):
                if isinstance(one, ast.Name) and (name := _last_of(other)):
                    return one.id, name
    return None


def said_axis(constraint: str, known: Mapping[str, Known]) -> tuple[str, int] | None:
    """Return an unknown axis and its value from an equation `AXIS == EXPRESSION`; None if it gives none."""
    match _parsed(constraint):
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[right]) if name not in known:
            try:
                value = _value(right, known, constraint)
            except Unknown:
                return None
            return (name, value) if isinstance(value, int) else None
    return None


def _parsed(constraint: str) -> ast.expr:
    try:
        return ast.parse(constraint, mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        raise ConfigError(f"constraint {constraint!r} is no expression of Python: {error}") from error


def _last_of(node: ast.expr) -> str:
    """Return the name in `NAME[-1]` or `NAME[-1].item()`; else an empty string."""
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[]):
            return _last_of(inner)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1))):
            return name
    return ""


def _value(node: ast.expr, known: Mapping[str, Known], shown: str) -> _Value:
    match node:
        case ast.Constant(value=bool() | int() as number):
            return number
        case ast.Name(id=name):
            if name not in known:
                raise Unknown(name)
            return known[name]
        case ast.Attribute(value=inner, attr="shape"):
            return _tensor(inner, known, shown).shape
        case ast.Subscript(value=inner, slice=index):
            return _item(_value(inner, known, shown), _number(index, known, shown), shown)
        case ast.Call(func=ast.Attribute(value=inner, attr="item"), args=[], keywords=[]):
            return _number(inner, known, shown)
        case _:
            return _compound(node, known, shown)


def _compound(node: ast.expr, known: Mapping[str, Known], shown: str) -> bool | int:
    match node:
        case ast.BoolOp(op=op, values=parts):
            values = [_number(part, known, shown) for part in parts]
            return all(values) if isinstance(op, ast.And) else any(values)
        case ast.UnaryOp(op=ast.Not() | ast.USub() as op, operand=inner):
            number = _number(inner, known, shown)
            return -number if isinstance(op, ast.USub) else not number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _result(_OPERATORS[type(op)], _number(left, known, shown), _number(right, known, shown), shown)
        case ast.Compare(left=left, ops=ops, comparators=others) if {*map(type, ops)} <= _COMPARISONS.keys():
            values = [_number(part, known, shown) for part in (left, *others)]
            pairs = zip(values, ops, values[1:], strict=False)
            return all(_COMPARISONS[type(op)](one, other) for one, op, other in pairs)
        case ast.Call(func=ast.Name(id=name), args=[*given], keywords=[]) if name in _FUNCTIONS and given:
            return _FUNCTIONS[name]([_number(part, known, shown) for part in given])
    raise ConfigError(f"constraint {shown!r}: {ast.unparse(node)!r} is not understood")


def _result(function: Callable[[int, int], int], left: int, right: int, shown: str) -> int:
    try:
        value = function(left, right)
    except ZeroDivisionError as error:
        raise ConfigError(f"constraint {shown!r} divides by zero") from error
    if abs(value) > _MOST:
        raise ConfigError(f"constraint {shown!r} leaves the range of 64-bit integers")
    return value


def _number(node: ast.expr, known: Mapping[str, Known], shown: str) -> int:
    value = _value(node, known, shown)
    if isinstance(value, KnownTensor | tuple):
        raise ConfigError(f"constraint {shown!r}: {ast.unparse(node)!r} is no number")
    return int(value)


def _tensor(node: ast.expr, known: Mapping[str, Known], shown: str) -> KnownTensor:
    value = _value(node, known, shown)
    if not isinstance(value, KnownTensor):
        raise ConfigError(f"constraint {shown!r}: {ast.unparse(node)!r} is no tensor")
    return value


def _item(value: _Value, index: int, shown: str) -> int:
    if isinstance(value, KnownTensor):
        if value.values is None:
            raise Unknown(shown)
        value = value.values
    if not isinstance(value, tuple) or not -len(value) <= index < len(value):
        raise ConfigError(f"constraint {shown!r} looks at an element that is not there")
    return value[index]


_INSIDE = "flashinfer_trace"
_MAX_BYTES = 64 << 20


def find_root(path: Path) -> Path:
    """Return the folder with `definitions/`: the given one, or `flashinfer_trace/` in it.

    Raises:
        ConfigError: neither has it.
    """
    for folder in (path, path / _INSIDE):
        if (folder / "definitions").is_dir():
            return folder
    raise ConfigError(f"{str(path)!r} holds no definitions/: it is no folder of FlashInfer-Bench (a TraceSet)")


def definition_names(root: Path) -> tuple[str, ...]:
    """Return the names of all definitions, sorted. A file has the name of its definition."""
    return tuple(sorted(path.stem for path in (root / "definitions").rglob("*.json")))


def read_definition(root: Path, name: str) -> Definition:
    """Return a definition.

    Raises:
        ConfigError: there is none of that name, or its file breaks the format's rules.
    """
    found = sorted((root / "definitions").rglob(f"{name}.json"))
    if len(found) != 1:
        raise ConfigError(_say_count(root, name, len(found)))
    definition = parse_definition(_bytes_of(found[0]), found[0].relative_to(root).as_posix())
    if definition.name != name:
        raise ConfigError(f"definition {found[0].relative_to(root).as_posix()!r} calls itself {definition.name!r}")
    return definition


def read_workloads(root: Path, definition: Definition) -> tuple[Workload, ...]:
    """Return the workloads of a definition in the order of its files; none if there is no file.

    Raises:
        ConfigError: a line is not a workload, or does not fit the definition.
    """
    found: list[Workload] = []
    for shown, line in _lines(root, root / "workloads", definition.name):
        trace = parse_trace(line, shown)
        if trace.definition != definition.name:
            continue
        if trace.solution is not None:
            raise ConfigError(f"trace {shown!r}: a workload's line names no solution")
        check_workload(definition, trace.workload, shown)
        found.append(trace.workload)
    uuids = [workload.uuid for workload in found]
    if double := next((uuid for uuid in uuids if uuids.count(uuid) > 1), None):
        raise ConfigError(f"definition {definition.name!r} has workload {double!r} twice")
    return tuple(found)


def read_traces(root: Path, definition: str) -> tuple[Trace, ...]:
    """Return all evaluations of a definition's solutions.

    Raises:
        ConfigError: a line is not a trace.
    """
    found = (parse_trace(line, shown) for shown, line in _lines(root, root / "traces", definition))
    return tuple(trace for trace in found if trace.definition == definition)


def append_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Append traces to a file, one JSON object a line. Creates the file and its folders.

    Raises:
        ConfigError: it cannot be written.
    """
    encoder = msgspec.json.Encoder()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for trace in traces:
                file.write(encoder.encode(trace) + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot write traces to {str(path)!r}: {error.strerror}") from error


def known_of(definition: Definition, workload: Workload) -> dict[str, Known]:
    """Return the known axes and inputs of a workload."""
    known: dict[str, Known] = {**definition.const_axes, **workload.axes}
    for name, argument in definition.inputs.items():
        if argument.shape is not None and all(axis in known for axis in argument.shape):
            sizes = {axis: value for axis, value in known.items() if isinstance(value, int)}
            known[name] = KnownTensor(shape=tuple(sizes[axis] for axis in argument.shape))
        given = workload.inputs.get(name)
        if isinstance(given, ScalarInput) and isinstance(given.value, int):
            known[name] = given.value
    return known


def check_workload(definition: Definition, workload: Workload, shown: str) -> None:
    """Check that a workload gives every axis and no unknown input, and satisfies all testable constraints.

    Raises:
        ConfigError: it does not.
    """
    where = f"workload {workload.uuid!r} ({shown})"
    if missing := [axis for axis in definition.var_axes if axis not in workload.axes]:
        raise ConfigError(f"{where} does not say how large {missing[0]!r} is")
    if negative := [axis for axis, size in workload.axes.items() if size < 0]:
        raise ConfigError(f"{where}: axis {negative[0]!r} is negative")
    for name in workload.inputs:
        _check_input(definition, workload, name, where)
    known = known_of(definition, workload)
    if constraint := _broken(definition, known):
        raise ConfigError(f"{where} breaks the constraint {constraint!r}")


def _broken(definition: Definition, known: Mapping[str, Known]) -> str:
    """Return the first violated constraint; empty if none is known to be violated."""
    for constraint in definition.constraints:
        try:
            if not holds(constraint, known):
                return constraint
        except Unknown:
            continue
    return ""


def _check_input(definition: Definition, workload: Workload, name: str, where: str) -> None:
    argument, given = definition.inputs.get(name), workload.inputs[name]
    if argument is None:
        raise ConfigError(f"{where} gives {name!r}, which definition {definition.name!r} does not take")
    if isinstance(given, ScalarInput) and argument.shape is not None:
        raise ConfigError(f"{where} gives a number for {name!r}, which is a tensor")
    if isinstance(given, SafetensorsInput) and argument.shape is None:
        raise ConfigError(f"{where} gives a tensor for {name!r}, which is a number")


def _lines(root: Path, folder: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield the lines of all files that are named after a definition, each with its place for messages."""
    for path in sorted(folder.rglob(f"{name}.jsonl")):
        for number, line in enumerate(_bytes_of(path).splitlines(), start=1):
            if line.strip():
                yield f"{path.relative_to(root).as_posix()}, line {number}", line


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ConfigError(f"{str(path)!r} is larger than {_MAX_BYTES >> 20} MiB; is it the right file?")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _say_count(root: Path, name: str, count: int) -> str:
    if count:
        return f"{str(root)!r} has {count} definitions {name!r}"
    close = difflib.get_close_matches(name, definition_names(root), n=3)
    suggestion = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    return f"{str(root)!r} has no definition {name!r}{suggestion}"


_MOST_BYTES = 4 << 20
_LARGEST_FILE = 2 << 30
_POINTER = b"version https://git-lfs"
_DTYPES = {
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1),
    "F8_E5M2": ("float8_e5m2", 1),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "BOOL": ("bool", 1),
}


class _Tensor(msgspec.Struct, frozen=True, kw_only=True):
    dtype: str
    shape: tuple[int, ...]
    content: bytes
    item_bytes: int


class Recordings(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded inputs of a task's workloads."""

    names: frozenset[str] = frozenset()
    """Inputs with recorded tensors; empty: none were found, and all are drawn."""
    module: str = ""
    """Text of the module with the recorded tensors."""
    missing: tuple[str, ...] = ()
    """Inputs that workloads list as recorded in files that are missing here."""


def recorded_inputs(root: Path, definition: Definition, workloads: Sequence[Workload]) -> Recordings:
    """Return the recorded inputs of some workloads; none if none of their files exists.

    Raises:
        ConfigError: only some of the files exist, one cannot be read, or its tensors do not fit.
    """
    wanted = [
        (workload, name, given)
        for workload in workloads
        for name, given in workload.inputs.items()
        if isinstance(given, SafetensorsInput)
    ]
    names = tuple(dict.fromkeys(name for _, name, _ in wanted))
    absent = [given.path for _, _, given in wanted if not _is_there(root / given.path)]
    if len(absent) == len(wanted):
        return Recordings(missing=names)
    if absent:
        raise ConfigError(
            f"{len(absent)} of {len(wanted)} recorded tensors of definition {definition.name!r} are not there, the "
            f"first in {str(root / absent[0])!r}; get them (`git lfs pull`), name other workloads, or remove the rest"
        )
    opened: dict[str, dict[str, _Tensor]] = {}
    entries: list[str] = []
    for workload, name, given in wanted:
        tensors = opened.setdefault(given.path, {}) or _read(root / given.path)
        opened[given.path] = tensors
        tensor = _fitting(definition, workload, name, given, tensors)
        packed = base64.b85encode(zlib.compress(tensor.content, 9)).decode("ascii")
        entries.append(f"    ({workload.uuid!r}, {name!r}): ({tensor.dtype!r}, {tensor.shape!r}, {packed!r}),\n")
    module = "".join(('"""Tensors that were recorded: dtype, shape, bytes."""\n\nTENSORS = {\n', *entries, "}\n"))
    if len(module) > _MOST_BYTES:
        raise ConfigError(
            f"the recorded tensors of {len(workloads)} workloads of definition {definition.name!r} take "
            f"{len(module) >> 20} MiB, which is more than a task carries; name fewer workloads"
        )
    for workload in workloads:
        _check_constraints(definition, workload, opened)
    return Recordings(names=frozenset(names), module=module)


def _is_there(path: Path) -> bool:
    """Return True if a file exists with its content; a git-lfs pointer does not count."""
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) != _POINTER
    except OSError:
        return False


def _read(path: Path) -> dict[str, _Tensor]:
    try:
        safetensors = importlib.import_module("safetensors")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{str(path)!r} is read by the package safetensors, which is not installed: "
            "`pip install 'ksearch-async[flashinfer]'`"
        ) from error
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ConfigError(f"{str(path)!r} is larger than {_LARGEST_FILE >> 30} GiB")
        found = safetensors.deserialize(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except safetensors.SafetensorError as error:
        raise ConfigError(f"{str(path)!r} is no safetensors file: {error}") from error
    tensors: dict[str, _Tensor] = {}
    for key, value in found:
        dtype, item_bytes = _DTYPES.get(value["dtype"], (value["dtype"], 1))
        tensors[key] = _Tensor(
            dtype=dtype, shape=tuple(value["shape"]), content=bytes(value["data"]), item_bytes=item_bytes
        )
    return tensors


def _fitting(
    definition: Definition, workload: Workload, name: str, given: SafetensorsInput, tensors: dict[str, _Tensor]
) -> _Tensor:
    """Return a tensor of the definition's dtype and the workload's shape."""
    where = f"workload {workload.uuid!r} of definition {definition.name!r}"
    tensor = tensors.get(given.tensor_key)
    if tensor is None:
        raise ConfigError(f"{where}: {given.path!r} holds no tensor {given.tensor_key!r}")
    known = known_of(definition, workload)[name]
    shape = known.shape if isinstance(known, KnownTensor) else ()
    if (tensor.dtype, tensor.shape) != (definition.inputs[name].dtype, shape):
        raise ConfigError(
            f"{where}: {name!r} must be {definition.inputs[name].dtype} {shape}, "
            f"and {given.path!r} has {tensor.dtype} {tensor.shape}"
        )
    return tensor


def _check_constraints(definition: Definition, workload: Workload, opened: dict[str, dict[str, _Tensor]]) -> None:
    """Check the constraints with the recorded inputs."""
    known = known_of(definition, workload)
    for name, given in workload.inputs.items():
        if isinstance(given, SafetensorsInput):
            tensor = opened[given.path][given.tensor_key]
            if tensor.dtype in {"int32", "int64"} and len(tensor.shape) == 1:
                known[name] = KnownTensor(shape=tensor.shape, values=_integers(tensor))
    if constraint := _broken(definition, known):
        raise ConfigError(
            f"workload {workload.uuid!r} of definition {definition.name!r} breaks the constraint {constraint!r} "
            "with the tensors that were recorded"
        )


def _integers(tensor: _Tensor) -> tuple[int, ...]:
    return tuple(memoryview(tensor.content).cast("i" if tensor.item_bytes == 4 else "q"))
