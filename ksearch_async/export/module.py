"""Writes one importable module that contains a kernel, its reference, its receipt and a self-test.

The module is assembled from files of `parts/`, which are ordinary code here. Imports of our own modules are dropped,
the others gathered at the top. All parts share one namespace, so no name may be defined twice.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from evaluators.judge.check.tolerances import bounds_of
from evaluators.languages import SPECS
from evaluators.languages.base import passed
from evaluators.languages.cpp.contract import COMPILER_FLAGS as CPP_FLAGS
from evaluators.languages.cpp.toolchain import features_of
from evaluators.languages.cuda.contract import COMPILER_FLAGS as CUDA_FLAGS
from evaluators.languages.triton.contract import argument_names
from evaluators.tasks.workloads import standalone_text
from ksearch_async.errors import refusal
from ksearch_async.export.receipt import Winner, header_of, receipt_of
from messages.base import Language
from messages.calls import CallForm, ConstantPlace, ListOf, Number, TensorPlace, TupleOf
from messages.tasks import Candidate, Target, TaskSpec, TensorSpec

_FOLDER = Path(__file__).parent / "parts"
_OURS = "ksearch_async"
_PURPOSE = "Part of exported modules: "
_LAST_IMPORT = "torch"
_LATE = ("REFERENCE", "RECEIPT")
"""Long facts, which are placed at the end."""
_LINT = re.compile(r"  # (?:noqa|type: ignore)\b.*$", re.MULTILINE)


def check_exportable(task: TaskSpec, candidate: Candidate) -> None:
    """Check that a kernel can be exported.

    Raises:
        ConfigError: it is a program, or its form cannot be exported.
    """
    if task.source == "program":
        raise refusal(
            f"{task.name!r} is a plain Python program, not a kernel: there is nothing to put around it",
            "ksearch best RUN --source prints it",
        )
    if len(task.shown) > 1:
        raise refusal(
            f"{task.name!r} has {len(task.shown)} workloads, and a module is made for one",
            "export the source for one of them: ksearch export RUN/best/SOURCE --task PROBLEM:WORKLOAD -o FILE",
        )
    if not (_FOLDER / f"{candidate.language}.py").exists():
        raise refusal(f"kernels in {candidate.language} cannot be exported", "ksearch best RUN --source prints them")
    if not SPECS[candidate.language].is_native and len(candidate.files) > 1:
        raise refusal(
            f"this kernel has {len(candidate.files)} Python files, and one module can hold one",
            "put them together and export the file with --task",
        )


def check_call(task: TaskSpec, call: CallForm | None) -> None:
    """Check that a module's `forward` can take a call form: tensors and numbers in, tensors out.

    Raises:
        ConfigError: it cannot.
    """
    if call is None:
        return
    if call.calling == "destination":
        raise refusal(
            f"kernels for {task.name!r} write to outputs that they are given, and a module returns new ones",
            "take the source: ksearch best RUN --source",
        )
    returned = call.outputs.items if isinstance(call.outputs, ListOf | TupleOf) else (call.outputs,)
    plain = all(
        isinstance(one, TensorPlace) or (isinstance(one, ConstantPlace) and isinstance(one.value, int | float))
        for one in call.arguments.items
    )
    if not plain or not all(isinstance(one, TensorPlace) for one in returned):
        raise refusal(
            f"{task.name!r} takes or returns more than tensors and numbers one after the other, and a module does not",
            "take the source: ksearch best RUN --source",
        )


def write_module(winner: Winner) -> str:
    """Return the module's text."""
    check_exportable(winner.task, winner.candidate)
    check_call(winner.task, winner.call)
    given = passed(winner.tensors, winner.call)
    named = list(zip(argument_names(given), given, strict=True))
    inputs = [(name, one) for name, one in named if isinstance(one, Number) or one.role != "output"]
    outputs = [tensor for tensor in winner.tensors if tensor.role == "output"]
    returned = ", ".join(tensor.name for tensor in outputs)
    facts: dict[str, object] = {
        "TITLE": winner.task.name,
        "ENTRY_POINT": winner.candidate.entry_point,
        "SOURCES": {file.path: file.text for file in winner.candidate.files},
        "CALLING": winner.call.calling if winner.call is not None else "module",
        "ARGUMENTS": tuple((name, one.shape, one.dtype) for name, one in inputs if not isinstance(one, Number)),
        "NUMBERS": tuple((name, one.place, one.value) for name, one in inputs if isinstance(one, Number)),
        "OUTPUTS": tuple((tensor.name, tensor.shape, tensor.dtype) for tensor in outputs),
        "BOUNDS": tuple(_bounds(winner.task, tensor) for tensor in outputs),
        "REFERENCE": standalone_text(winner.task.text, winner.task.workloads[0])
        if winner.task.workloads
        else winner.task.text,
        "RECEIPT": receipt_of(winner),
        **_target_facts(winner.candidate.language, winner.target),
    }
    header = header_of(winner, f"forward({', '.join(name for name, _ in inputs)}) -> {returned}")
    return assemble(header, facts, _forward(inputs, outputs), parts_of(winner.candidate.language))


def parts_of(language: Language) -> tuple[str, ...]:
    """Return the files of `parts/` for a language, in order."""
    native = ("native",) if SPECS[language].is_native else ()
    return ("calling", *native, language, "checking", "program")


def _target_facts(language: Language, target: Target) -> dict[str, object]:
    if language == "cpp":
        return {"FLAGS": CPP_FLAGS, "ARCHITECTURE": target.march, "CPU_FEATURES": features_of(target.march)}
    return {"ARCHITECTURE": target.arch} | ({"FLAGS": CUDA_FLAGS} if language == "cuda" else {})


def _bounds(task: TaskSpec, output: TensorSpec) -> tuple[float, float | None, bool]:
    if "float" not in output.dtype:
        return 0.0, 0.0, False
    bounds = bounds_of(task.tolerance, output.dtype).for_elements(math.prod(output.shape))
    return bounds.rtol, bounds.atol, bounds.is_either


def _forward(inputs: list[tuple[str, TensorSpec | Number]], outputs: list[TensorSpec]) -> str:
    last = max((at for at, (_, one) in enumerate(inputs) if not isinstance(one, Number)), default=-1)
    parameters = ", ".join(
        f"{name}: {type(one.value).__name__}{f' = {one.value!r}' if at > last else ''}"
        if isinstance(one, Number)
        else f"{name}: torch.Tensor"
        for at, (name, one) in enumerate(inputs)
    )
    kind = "torch.Tensor" if len(outputs) == 1 else f"tuple[{', '.join(['torch.Tensor'] * len(outputs))}]"
    arguments = "".join(f"        {name}: {_said(one)}.\n" for name, one in inputs)
    returned = "; ".join(f"{tensor.name} {tensor.shape} {tensor.dtype}" for tensor in outputs)
    tensors = "".join(f"{name}, " for name, one in inputs if not isinstance(one, Number)).strip()
    numbers = ", ".join(name for name, one in inputs if isinstance(one, Number))
    check = f"    check_numbers({numbers})\n" if numbers else ""
    call = f"run(({tensors}))"
    return f'''def forward({parameters}) -> {kind}:
    """Compute what the reference computes, in new tensors.

    Args:
{arguments}
    Returns:
        {returned}.

    Raises:
        TypeError, ValueError: a tensor, or a number, is not as it was judged.
        RuntimeError: gradients are wanted, or the kernel cannot be built or failed.
    """
{check}    return {f"{call}[0]" if len(outputs) == 1 else call}'''


def _said(one: TensorSpec | Number) -> str:
    if isinstance(one, Number):
        return f"{one.value!r}, and no other: the kernel was judged with it"
    state = "" if one.role == "input" else f", the reference's {one.name}"
    return f"{one.shape} {one.dtype}{state}"


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str
    """Its docstring as a comment, and its code below the imports."""
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    """Its imports, without those of our own modules."""
    defines: tuple[str, ...]


def _read_part(name: str) -> _Part:
    text = (_FOLDER / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    behind = max(node.end_lineno or 0 for node in imports)
    body = _LINT.sub("", "".join(text.splitlines(keepends=True)[behind:])).strip("\n")
    purpose = (ast.get_docstring(tree) or "").removeprefix(_PURPOSE)
    comment = "\n".join(f"# {line}".rstrip() for line in (purpose[:1].upper() + purpose[1:]).splitlines())
    return _Part(
        name=name,
        text=f"{comment}\n\n\n{body}",
        imports=tuple(node for node in imports if not _is_ours(node)),
        defines=tuple(filter(None, map(_name_of, tree.body))),
    )


def assemble(header: str, facts: Mapping[str, object], front: str, names: Iterable[str]) -> str:
    """Return a module's text.

    Args:
        header: its docstring.
        facts: values for the constants of `parts/facts.py` that it needs.
        front: code before the parts.
        names: the parts, in order; long facts are placed before the last one.
    """
    parts = [_read_part(name) for name in names]
    _check_names([_read_part("facts"), *parts])
    *sections, last = (part.text for part in parts)
    early, late = (
        "\n".join(f"{name} = {literal(value)}" for name, value in facts.items() if (name in _LATE) is is_late)
        for is_late in (False, True)
    )
    imports = "\n".join(_import_lines(node for part in parts for node in part.imports))
    top = f"{docstring(header)}\n\nfrom __future__ import annotations\n\n{imports}\n\n{early}"
    return "\n\n\n".join((top, front, *sections, late, last)) + "\n"


def _import_lines(statements: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    modules: set[str] = set()
    names: dict[str, set[str]] = {}
    for node in statements:
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        else:
            names.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    yield from (f"import {module}" for module in sorted(modules - {_LAST_IMPORT}))
    yield from (f"from {module} import {', '.join(sorted(names[module]))}" for module in sorted(names))
    yield f"\nimport {_LAST_IMPORT}"


def docstring(text: str) -> str:
    """Return the source of a docstring."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{escaped}\n"""'


def literal(value: object) -> str:
    """Return the source of a value. Strings of several lines stay readable if that is exact."""
    if isinstance(value, str) and "\n" in value:
        return _text_literal(value)
    if isinstance(value, dict):
        items = "".join(f"    {literal(key)}: {literal(item)},\n" for key, item in value.items())
        return f"{{\n{items}}}"
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return "(\n" + "".join(f"    {item!a},\n" for item in value) + ")"
    if isinstance(value, frozenset):  # in an order that is the same in every export
        return f"frozenset({sorted(value)!a})"
    return ascii(value)


def _text_literal(text: str) -> str:
    for quotes in ("'''", '"""'):
        candidate = f"r{quotes}{text}{quotes}"
        if _reads_as(candidate, text):
            return candidate
    return ascii(text)


def _reads_as(source: str, text: str) -> bool:
    if "\r" in text or "\0" in text or "\f" in text:
        return False
    try:
        source.encode()
        return bool(ast.literal_eval(source) == text)
    except (SyntaxError, ValueError):
        return False


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (_OURS, "__future__")


def _name_of(node: ast.stmt) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return ""


def _check_names(parts: list[_Part]) -> None:
    seen: dict[str, str] = {}
    for part in parts:
        for name in part.defines:
            if name in seen:
                raise AssertionError(f"parts {seen[name]!r} and {part.name!r} both define {name!r}")
            seen[name] = part.name
