"""Reads a reference program: its `forward`, gone through with shapes instead of numbers, becomes a graph.

A program whose tensors all share one space of rows and columns becomes a `Program`; any other one a `Staged`.
Nothing of it is run. What has no rule is named in a `NoRuleError`.
"""

from __future__ import annotations

import ast

from actors.llm.offline.constants import Constants, read_constants
from actors.llm.offline.graph import NoRuleError, Program, TensorInfo
from actors.llm.offline.stages.ir import AnyProgram, Staged
from actors.llm.offline.stages.lowering import lowered
from actors.llm.offline.stages.tracing import StagedTracer
from actors.llm.offline.tracing import FLOATING, RowTracer, Shape, Traced, Tracer, Value, broadcast
from actors.llm.offline.walk import Walk

_FLAT_COLUMNS = 16_384
"""Longest row into which a program without reductions is cut."""


def read_program(source: str, tensors: tuple[TensorInfo, ...], workload: str = "") -> AnyProgram:
    """Return what the reference computes.

    Args:
        source: the problem file.
        tensors: inputs in call order, then parameters, then outputs.
        workload: which one of several they are of.

    Raises:
        NoRuleError: it holds something that the rules do not cover, or is no Python.
    """
    try:
        module = ast.parse(source)
    except SyntaxError as error:
        raise NoRuleError(f"a reference that is no Python (line {error.lineno}: {error.msg})") from error
    constants = read_constants(module, workload)
    return _rows(constants, tensors) or _staged(constants, tensors)


def _rows(constants: Constants, tensors: tuple[TensorInfo, ...]) -> Program | None:
    """Return a program of rows and columns; None if it is none."""
    full: Shape = ()
    try:
        for tensor in tensors:
            if tensor.role != "output":
                full = broadcast(full, tensor.shape)
    except NoRuleError:
        return None
    for trailing in range(1, len(full) + 1):
        tracer = RowTracer(full, trailing)
        try:
            return _finished(tracer, _results(tracer, constants, tensors), tensors)
        except NoRuleError:
            continue
    return None


def _staged(constants: Constants, tensors: tuple[TensorInfo, ...]) -> Staged:
    for tensor in tensors:
        if tensor.role == "output" and tensor.dtype not in FLOATING | {"bool"}:
            raise NoRuleError(f"results of dtype {tensor.dtype}: all arithmetic is floating-point")
    tracer = StagedTracer()
    results = _results(tracer, constants, tensors)
    return lowered(tracer.nodes, [tracer.tensor(result) for result in results], tensors)


def _results(tracer: Tracer, constants: Constants, tensors: tuple[TensorInfo, ...]) -> tuple[Traced, ...]:
    """Go through `forward` and return what it returns.

    Raises:
        NoRuleError: something has no rule, or the results are not those that the task lists.
    """
    inputs = tuple(tensor for tensor in tensors if tensor.role == "input")
    arguments = constants.forward.args
    names = [argument.arg for argument in arguments.args[1:]]
    if len(names) < len(inputs):
        raise NoRuleError(f"`forward` with the arguments {names} for {len(inputs)} inputs")
    walk = Walk(tracer, constants, {tensor.name: tensor for tensor in tensors if tensor.role == "parameter"})
    for name, default in zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True):
        walk.values[name] = walk.evaluate(default)
    is_named = all(tensor.name in names for tensor in inputs)  # numbers may stand among them
    for name, tensor in zip(names, inputs, strict=False):
        walk.values[tensor.name if is_named else name] = tracer.load(tensor)
    result = walk.run(constants.forward.body)
    results: tuple[Value, ...] = result if isinstance(result, tuple) else (result,)
    found = tuple(tracer.tensor(value) for value in results)
    expected = tuple(tensor.shape for tensor in tensors if tensor.role == "output")
    if tuple(value.shape for value in found) != expected:
        raise NoRuleError(f"results of shapes {[value.shape for value in found]}, expected {list(expected)}")
    return found


def _finished(tracer: RowTracer, outputs: tuple[Traced, ...], tensors: tuple[TensorInfo, ...]) -> Program:
    """Cut programs that know no rows into rows of a handy length."""
    nodes = tuple(tracer.graph.nodes)
    indices = tuple(output.index for output in outputs)
    if any(nodes[index].kind not in {"full", "row"} for index in indices):
        raise NoRuleError("an output that does not depend on every input's shape")
    rows, columns = tracer.rows, tracer.columns
    if all(node.kind in {"full", "scalar"} for node in nodes):
        size = rows * columns
        columns = max(width for width in range(1, min(size, _FLAT_COLUMNS) + 1) if size % width == 0)
        rows = size // columns
    return Program(nodes=nodes, outputs=indices, rows=rows, columns=columns, tensors=tensors)
