"""Shared by C++ and CUDA: their support, the C declaration of an entry point, and errors of compilers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from evaluators.languages.base import IDENTIFIER, Passed, dtype_of, passed, shape_text
from evaluators.languages.cpp.toolchain import tvm_ffi_folder
from evaluators.runners.base import NO_ENTRY_POINT
from messages.base import EvaluatorError
from messages.calls import CallForm, Number
from messages.tasks import Candidate, TensorSpec
from messages.verdicts import Crashed, DidNotBuild


class CompiledSupport:
    """The part of `LanguageSupport` that C++ and CUDA share: candidates become one shared library."""

    not_timed = ""
    builds_for_tensors = False
    units: tuple[str, ...]
    """Endings of the files to compile; the others are headers."""

    def refuse(self, candidate: Candidate) -> DidNotBuild | None:
        """Say why the candidate cannot be given to the compiler, if so."""
        if IDENTIFIER.fullmatch(candidate.entry_point) is None:
            return DidNotBuild(reason=f"entry point {candidate.entry_point!r} is no C identifier")
        if not self.sources(candidate):
            return DidNotBuild(reason=f"no file to compile: at least one must end in {', '.join(self.units)}")
        return None

    def check_product(self, product: Path, candidate: Candidate) -> DidNotBuild | None:
        """Look for the entry point among the dynamic symbols; the file is stripped, so that no others are there."""
        names, name = product.read_bytes(), candidate.entry_point
        if any(b"\0" + symbol + b"\0" in names for symbol in (name.encode(), f"__tvm_ffi_{name}".encode())):
            return None
        return DidNotBuild(
            reason=f'{name} is not exported: define `extern "C" int {name}(...)` '
            f"or export it with TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, ...)"
        )

    def explain_load_failure(self, status: int, log: str) -> DidNotBuild | Crashed:
        """Return the last line of what the dynamic linker said."""
        last = log.splitlines()[-1:] or ["no message"]
        if status == NO_ENTRY_POINT:
            return DidNotBuild(reason=last[0])
        return Crashed(reason=f"the library cannot be loaded: {last[0]}", log=log)

    def sources(self, candidate: Candidate) -> tuple[str, ...]:
        """Return the files to compile."""
        return tuple(file.path for file in candidate.files if file.path.endswith(self.units))


def tvm_ffi_flags(candidate: Candidate) -> tuple[str, ...]:
    """Return include path and library for candidates that include a header of tvm-ffi.

    Raises:
        EvaluatorError: one does, and apache-tvm-ffi is not installed.
    """
    if not any("tvm/ffi/" in file.text or "dlpack/" in file.text for file in candidate.files):
        return ()
    folder = tvm_ffi_folder()
    if folder is None:
        raise EvaluatorError("apache-tvm-ffi is not installed: `pip install apache-tvm-ffi`", permanent=True)
    return ("-isystem", str(folder / "include"), f"-L{folder / 'lib'}", "-ltvm_ffi")


def without_our_paths(log: str) -> str:
    """Replace the folder of tvm-ffi in a compiler's output."""
    folder = tvm_ffi_folder()
    return log if folder is None else log.replace(str(folder), "<tvm-ffi>")


_NUMBERS = """- A number among the inputs is passed by value: `inputs[i]` points to an `int64_t`, a `double` or a `bool`
  in host memory, and `shapes[i]` has no dimensions. It is the same in every call of a workload. tvm-ffi functions
  take it as a parameter of that type."""
"""Rule of tasks with inputs besides tensors."""


def describe_function(
    tensors: tuple[TensorSpec, ...],
    call: CallForm | None,
    types: Mapping[str, str],
    *,
    title: str,
    signature: str,
    rules: str,
    includes: str,
    body: str,
) -> str:
    """Tell signature, rules and a skeleton for these tensors, and the numbers among them.

    Args:
        tensors: the task's; `check_dtypes` accepts them.
        call: what stands beside them in a call; None: nothing.
        types: how elements are declared, by dtype.
        title: first line.
        signature: of the function, with the semicolon.
        rules: for people and models.
        includes: lines above the skeleton.
        body: its lines below the tensors, indented.
    """
    skeleton = _skeleton(passed(tensors, call), types, signature.removesuffix(";"), includes=includes, body=body)
    return "\n\n".join(
        (
            title,
            f"```cpp\n{signature}\n```",
            f"{rules}\n{_NUMBERS}" if call is not None and call.numbers else rules,
            "Skeleton of the contract (it computes nothing):",
            f"```cpp\n{skeleton}\n```",
        )
    )


def _skeleton(given: tuple[Passed, ...], types: Mapping[str, str], signature: str, *, includes: str, body: str) -> str:
    """Return a function that names every tensor and number and computes nothing."""
    inputs = [one for one in given if isinstance(one, Number) or one.role != "output"]
    outputs = [one for one in given if isinstance(one, TensorSpec) and one.role == "output"]
    lines = [includes, "", f"{signature} {{"]
    for index, tensor in enumerate(inputs):
        kind = types[dtype_of(tensor) if isinstance(tensor, Number) else tensor.dtype]
        name = _identifier(tensor.name)
        if isinstance(tensor, Number):
            value = f"*static_cast<const {kind}*>(inputs[{index}]);  // {tensor.value}"
            lines.append(f"    const {kind} {name} = {value}")
        else:
            value = f"static_cast<const {kind}*>(inputs[{index}]);"
            lines.append(f"    const {kind}* {name} = {value}  // {shape_text(tensor)}, dimensions in shapes[{index}]")
    for index, tensor in enumerate(outputs):
        kind = types[tensor.dtype]
        lines.append(
            f"    {kind}* {_identifier(tensor.name)} = static_cast<{kind}*>(outputs[{index}]);"
            f"  // {shape_text(tensor)}, dimensions in shapes[{len(inputs) + index}]"
        )
    return "\n".join((*lines, body, "}"))


def _identifier(name: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)


MAX_ERRORS = 4
_MAX_DETAILS = 8
_MAX_LINE = 240
_MAX_REASON = 300
_ARGUMENTS = re.compile(r"\s*\[with [^\n]*\](?=[\u2019'\":]|$|\s)")
"""Template arguments: lines of thousands of characters that repeat the code."""


class CompilerError(msgspec.Struct, frozen=True, kw_only=True):
    """One error as a compiler printed it."""

    file: str
    headline: str
    """Its first line."""
    message: str
    """The error without its place."""
    details: tuple[str, ...] = ()
    """Source line, caret, and notes about the candidate's own files."""
    came_from: str = ""
    """Place in the candidate's own code that led there, where the error itself is in a library's header."""


def first_errors(errors: list[CompilerError], own_files: tuple[str, ...]) -> tuple[str, str]:
    """Return the first error in one line, and the first few with their source lines.

    Errors in the candidate's own files come first, then those that its code led to, then the rest. A second message on
    the same place is left out.
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
