"""Reads a Triton candidate without executing it: a stdlib-only script for `python -I -S`.

Its arguments are the entry point's name and the candidate's Python files, the main one first. Found: what is no
Python, a missing entry point, a program without a kernel. Not found: anything that only importing or calling it shows.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def main() -> int:
    """Check the files named as arguments."""
    entry_point, *paths = sys.argv[1:]
    return check(entry_point, paths)


def check(entry_point: str, paths: Sequence[str]) -> int:
    """Read a program's files, the main one first. Prints the first thing that is wrong, and returns 1 then."""
    trees: list[ast.Module] = []
    for path in paths:
        try:
            trees.append(ast.parse(Path(path).read_bytes(), path))
        except SyntaxError as error:
            return _refuse(
                f"{path}:{error.lineno or 1} in module: {(error.text or '').strip()}", f"SyntaxError: {error.msg}"
            )
        except (ValueError, RecursionError, MemoryError) as error:
            return _refuse(f"{path}: {type(error).__name__}: {error}")
    if entry_point not in set(_names(trees[0])):
        return _refuse(f"{entry_point} is not defined in {paths[0]}")
    kernels = [function for tree in trees for function in _kernels(tree)]
    if any(function.name == entry_point for function in kernels):
        return _refuse(f"{entry_point} is a kernel: it must be a Python function that launches kernels")
    if not kernels:
        return _refuse("no kernel: no function is decorated with @triton.jit")
    return 0


def _refuse(*lines: str) -> int:
    sys.stderr.write("\n".join(lines) + "\n")
    return 1


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module binds at its top level, those in `if` and `try` included."""
    pending: list[ast.stmt] = list(tree.body)
    for node in pending:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        else:
            yield from (name.id for name in ast.walk(node) if isinstance(name, ast.Name))
            yield from (inner.name for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef))


def _kernels(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions that are decorated with something called `jit`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_jit(decorator) for decorator in node.decorator_list):
            yield node


def _is_jit(decorator: ast.expr) -> bool:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name == "jit"


if __name__ == "__main__":
    sys.exit(main())
