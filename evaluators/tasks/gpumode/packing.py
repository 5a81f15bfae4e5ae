"""Converts between a competition's `submission.py` and candidates.

- `candidate_of_text(text, task) -> Candidate`, raises ConfigError
- `write_submission(candidate, task, told) -> str`, raises ConfigError
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from evaluators.tasks.gpumode.problem_text import defined_names, imported_modules, parse
from evaluators.tasks.gpumode.reading import ENTRY_POINT
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile, TaskSpec

SUBMISSION = "submission.py"
_MAIN = "main.py"
_THEIRS = ("task.py", "utils.py")
"""Modules beside a submission in the competition, which it may import."""
_COMPILE = "compile"
_AS_IT_IS = "(lambda function: function)"
_REFUSED_WORD = "stream"
"""The competition's server refuses a submission that contains this word, in any meaning."""


def candidate_of_text(text: str, task: TaskSpec, name: str = "") -> Candidate:  # noqa: ARG001 - its file is named
    """Return a submission as a candidate. Its first line reports removed calls of `torch.compile`, if any.

    Candidates run where nothing can be compiled.

    Raises:
        ConfigError: it is not Python, or defines nothing that can be called.
    """
    names = defined_names(text, SUBMISSION)
    passes = _passes_of(task)
    if ENTRY_POINT not in names and not (passes and set(passes) <= names):
        wanted = f"{passes[0]} and {passes[1]}" if passes else ENTRY_POINT
        raise ConfigError(f"{SUBMISSION} does not define {wanted} at its top level")
    eager, taken_out = _without_compile(text)
    needed = imported_modules(text, SUBMISSION)
    beside = [file for file in task.files if file.path in _THEIRS and file.path.removesuffix(".py") in needed]
    if taken_out:
        note = f"{taken_out} of torch.compile taken out: nothing is compiled where candidates run"
        eager = f"# ksearch-async: {note}\n{eager}"
    own = SourceFile(path=SUBMISSION, text=eager)
    files = (own, *beside) if ENTRY_POINT in names else (_main_of(passes), own, *beside)
    return Candidate(language="python", entry_point=ENTRY_POINT, files=files)


def write_submission(candidate: Candidate, task: TaskSpec, told: Sequence[str] = ()) -> str:
    """Return the one file that the competition accepts.

    Args:
        candidate: a function `custom_kernel`, in one file.
        task: its problem.
        told: lines for its head: the measurements and their source.

    Raises:
        ConfigError: it is in another form, or contains a word that the competition refuses.
    """
    own = [file for file in candidate.files if file.path not in _THEIRS]
    if candidate.language != "python" or candidate.entry_point != ENTRY_POINT:
        raise ConfigError(
            f"a submission is a Python function {ENTRY_POINT}, and this candidate is {candidate.entry_point} in "
            f"{candidate.language}; search with --language python"
        )
    passes = _passes_of(task)
    if passes and own[0].path == _MAIN:
        own = own[1:]
    if len(own) != 1:
        raise ConfigError(
            f"a submission is one file, and this candidate has {len(own)}: {', '.join(file.path for file in own)}"
        )
    text = own[0].text
    missing = set(passes or (ENTRY_POINT,)) - defined_names(text, own[0].path)
    if missing:
        raise ConfigError(f"{own[0].path} does not define {', '.join(sorted(missing))}, which the competition calls")
    if line := next(
        (number for number, line in enumerate(text.splitlines(), start=1) if _REFUSED_WORD in line.lower()), None
    ):
        raise ConfigError(
            f"{own[0].path}, line {line}: the competition refuses a submission that holds the word {_REFUSED_WORD!r}"
        )
    head = (f"{task.name}; candidate {candidate.candidate_id}, found by ksearch-async.", *told)
    # The head must not contain the word in any case.
    lines = [f"# {line}" for part in head for line in part.splitlines() if _REFUSED_WORD not in line.lower()]
    return "\n".join((*lines, "", text.lstrip("\n")))


def _passes_of(task: TaskSpec) -> tuple[str, ...]:
    """Return the two functions that the problem requires instead of one; empty if it requires one."""
    for node in ast.walk(parse(task.text, task.name)):
        match node:
            case ast.Assign(targets=[ast.Name(id="PASSES")], value=value):
                told: object = ast.literal_eval(value)
                return tuple(map(str, told)) if isinstance(told, tuple) else ()
            case _:
                pass
    return ()


def _main_of(passes: Sequence[str]) -> SourceFile:
    """Return the file that joins a forward and a backward pass into one function."""
    forward, backward = passes
    lines = (
        f"from {SUBMISSION.removesuffix('.py')} import {backward}, {forward}",
        "",
        "",
        f"def {ENTRY_POINT}(data):",
        "    logits, targets, grad_output = data",
        f"    return {forward}(logits, targets), {backward}(logits, targets, grad_output)",
    )
    return SourceFile(path=_MAIN, text="\n".join(lines) + "\n")


def _without_compile(text: str) -> tuple[str, int]:
    """Return a text with calls of `torch.compile` replaced by their argument, and their number."""
    lines = text.splitlines(keepends=True)
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.expr) and _is_compile(node)]
    inner = {id(node.func) for node in found if isinstance(node, ast.Call)}
    spans = [node for node in found if id(node) not in inner]
    # From the end, so that earlier positions stay valid.
    for node in sorted(spans, key=lambda one: (one.lineno, one.col_offset), reverse=True):
        given = node.args[0] if isinstance(node, ast.Call) and node.args else None
        instead = (ast.get_source_segment(text, given) or "") if given is not None else _AS_IT_IS
        _replace(lines, node, instead)
    return "".join(lines), len(spans)


def _is_compile(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=attr):
            return attr == _COMPILE
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=attr)):
            return attr == _COMPILE
        case _:
            return False


def _replace(lines: list[str], node: ast.expr, instead: str) -> None:
    """Replace an expression by a text; columns are counted in UTF-8 bytes."""
    last = node.end_lineno or node.lineno
    head = lines[node.lineno - 1].encode()[: node.col_offset].decode()
    tail = lines[last - 1].encode()[node.end_col_offset or 0 :].decode()
    lines[node.lineno - 1 : last] = [f"{head}{instead}{tail}"]
