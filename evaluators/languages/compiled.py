"""Shared by C++ and CUDA: the C declaration of an entry point, and errors of compilers."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from evaluators.languages.base import Passed, dtype_of
from messages.base import ConfigError
from messages.calls import Number
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


MAX_ERRORS = 4
_MAX_DETAILS = 8
_MAX_LINE = 240
_MAX_REASON = 300
_ARGUMENTS = re.compile(r"\s*\[with [^\n]*\](?=[\u2019'\":]|$|\s)")
"""What templates were filled in with: lines of thousands of characters that say again what the code says."""


class CompilerError(msgspec.Struct, frozen=True, kw_only=True):
    """One error as a compiler printed it."""

    file: str
    headline: str
    """Its first line."""
    message: str
    """What is wrong, without the place."""
    details: tuple[str, ...] = ()
    """Source line, caret, and notes about the candidate's own files."""
    came_from: str = ""
    """Place in the candidate's own code that led there, where the error itself is in a library's header."""


def first_errors(errors: list[CompilerError], own_files: tuple[str, ...]) -> tuple[str, str]:
    """Return the first error in one line, and the first few with their source lines.

    Errors in the candidate's own files come first, then those that its code led to, then the rest. What is said twice
    of the same place is said once.

    Args:
        errors: at least one, in the compiler's order.
        own_files: the candidate's, as the compiler was given them.
    """
    different: dict[tuple[str, str], CompilerError] = {}
    for error in errors:
        different.setdefault((error.message, error.came_from or error.headline), error)
    ranked = sorted(different.values(), key=lambda error: _rank(error, own_files))
    shown = "\n".join(_text(error) for error in ranked[:MAX_ERRORS])
    more = len(ranked) - MAX_ERRORS
    log = f"{shown}\n({more} more errors)" if more > 0 else shown
    first = ranked[0]
    reason = f"{first.came_from}: error: {first.message}" if _rank(first, own_files) == 1 else first.headline
    return shortened(reason)[:_MAX_REASON], log


def shortened(line: str) -> str:
    """Return a line without template arguments, cut at a bearable length."""
    line = _ARGUMENTS.sub("", line)
    return line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]} …"


def _rank(error: CompilerError, own_files: tuple[str, ...]) -> int:
    if error.file in own_files:
        return 0
    return 1 if error.came_from else 2


def _text(error: CompilerError) -> str:
    lines = [shortened(error.headline)]
    if error.came_from:
        lines.append(f"  your code leads there at {error.came_from}")
    details = [shortened(line) for line in error.details if line.strip()]
    if len(details) > _MAX_DETAILS:
        details = [*details[:_MAX_DETAILS], f"  ({len(details) - _MAX_DETAILS} more lines)"]
    return "\n".join((*lines, *details))
