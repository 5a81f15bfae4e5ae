"""The C side of a raw entry point, as C++ and CUDA candidates are shown it."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.languages.passed import Passed, dtype_of
from messages.calls import Number
from messages.errors import ConfigError
from messages.tasks import TensorSpec


def check_dtypes(tensors: tuple[TensorSpec, ...], types: Mapping[str, str], language: str) -> None:
    """Refuse tensors that a language cannot be given.

    Args:
        tensors: the task's.
        types: how elements are declared, by dtype.
        language: its name for people.

    Raises:
        ConfigError: a dtype has no declaration.
    """
    for tensor in tensors:
        if tensor.dtype not in types:
            raise ConfigError(
                f"tensor {tensor.name!r} is {tensor.dtype}; {language} candidates can be given: {', '.join(types)}"
            )


NUMBERS = """- A number among the inputs is passed by value: `inputs[i]` points to an `int64_t`, a `double` or a `bool`
  in host memory, and `shapes[i]` has no dimensions. It is the same in every call of a workload. tvm-ffi functions
  take it as a parameter of that type."""
"""Rule of tasks whose inputs are not only tensors."""


def write_skeleton(
    given: tuple[Passed, ...], types: Mapping[str, str], signature: str, *, includes: str, body: str
) -> str:
    """Return a function that names every tensor and number and computes nothing.

    Args:
        given: what the task's function is given, outputs last.
        types: how elements are declared, by dtype.
        signature: of the function, without the semicolon.
        includes: lines above it.
        body: lines below the tensors, indented.
    """
    inputs = [one for one in given if isinstance(one, Number) or one.role != "output"]
    outputs = [one for one in given if isinstance(one, TensorSpec) and one.role == "output"]
    lines = [includes, "", f"{signature} {{"]
    for index, tensor in enumerate(inputs):
        if isinstance(tensor, Number):
            kind = types[dtype_of(tensor)]
            lines.append(
                f"    const {kind} {_identifier(tensor.name)} = *static_cast<const {kind}*>(inputs[{index}]);"
                f"  // {tensor.value}"
            )
            continue
        kind = types[tensor.dtype]
        lines.append(
            f"    const {kind}* {_identifier(tensor.name)} = static_cast<const {kind}*>(inputs[{index}]);"
            f"  // {_shape(tensor)}, dimensions in shapes[{index}]"
        )
    for index, tensor in enumerate(outputs):
        kind = types[tensor.dtype]
        lines.append(
            f"    {kind}* {_identifier(tensor.name)} = static_cast<{kind}*>(outputs[{index}]);"
            f"  // {_shape(tensor)}, dimensions in shapes[{len(inputs) + index}]"
        )
    return "\n".join((*lines, body, "}"))


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)


def _shape(tensor: TensorSpec) -> str:
    return f"({', '.join(map(str, tensor.shape))}{',' if len(tensor.shape) == 1 else ''})"
