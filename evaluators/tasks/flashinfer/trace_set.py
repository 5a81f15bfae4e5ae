"""A folder of FlashInfer-Bench: definitions, workloads, solutions, traces and recorded tensors. Reads, runs nothing.

    definitions/OP/NAME.json   workloads/OP/NAME.jsonl   blob/workloads/…/*.safetensors
    solutions/AUTHOR/OP/NAME/SOLUTION.json               traces/AUTHOR/OP/NAME.jsonl

- `find_root(path: Path) -> Path`, raises ConfigError
- `read_definition(root, name)`, `definition_names(root)`
- `read_workloads(root, definition)`, `read_solutions(root, definition)`, `read_traces(root, definition)`
- `append_traces(path, traces)`: as upstream's loader reads them
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from evaluators.tasks.flashinfer.constraints import Known, KnownTensor, Unknown, holds
from evaluators.tasks.flashinfer.schema import (
    Definition,
    SafetensorsInput,
    ScalarInput,
    Solution,
    Trace,
    Workload,
    parse_definition,
    parse_solution,
    parse_trace,
)
from messages.base import ConfigError

_INSIDE = "flashinfer_trace"
_MAX_BYTES = 64 << 20


def find_root(path: Path) -> Path:
    """Return the folder that holds `definitions/`: the given one, or `flashinfer_trace/` in it.

    Raises:
        ConfigError: neither does.
    """
    for folder in (path, path / _INSIDE):
        if (folder / "definitions").is_dir():
            return folder
    raise ConfigError(f"{str(path)!r} holds no definitions/: it is no folder of FlashInfer-Bench (a TraceSet)")


def definition_names(root: Path) -> tuple[str, ...]:
    """Return the names of all definitions, sorted. A file is named as its definition is."""
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
    """Return the workloads of a definition in the order of its files; none where there is no file.

    Raises:
        ConfigError: a line is no workload, or does not fit the definition.
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


def read_solutions(root: Path, definition: str) -> tuple[Solution, ...]:
    """Return all solutions of a definition.

    Raises:
        ConfigError: a file breaks the format's rules.
    """
    paths = sorted((root / "solutions").rglob("*.json"))
    found = (parse_solution(_bytes_of(path), path.relative_to(root).as_posix()) for path in paths)
    return tuple(solution for solution in found if solution.definition == definition)


def read_traces(root: Path, definition: str) -> tuple[Trace, ...]:
    """Return all evaluations of a definition's solutions.

    Raises:
        ConfigError: a line is no trace.
    """
    found = (parse_trace(line, shown) for shown, line in _lines(root, root / "traces", definition))
    return tuple(trace for trace in found if trace.definition == definition)


def append_traces(path: Path, traces: Iterable[Trace]) -> None:
    """Append traces to a file, one JSON object a line, which is made with its folders.

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
    """Return what a workload says of its definition's axes and inputs."""
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
    """See that a workload gives every axis, no input that is not there, and keeps the constraints as far as they show.

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
    for constraint in definition.constraints:
        try:
            is_kept = holds(constraint, known)
        except Unknown:
            continue
        if not is_kept:
            raise ConfigError(f"{where} breaks the constraint {constraint!r}")


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
