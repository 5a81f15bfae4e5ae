"""Reads a Python candidate without executing it: a stdlib-only script for `python -I -S`.

Its arguments are the form (`module` or `kernels`), the entry point's name and the Python files, the main one first.
Found: what is no Python, a missing entry point; of the form `kernels`, a program without a Triton kernel. Not found:
anything that only importing or calling it shows.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


def main() -> int:
    """Check the files named as arguments. Returns an exit code."""
    form, name, *paths = sys.argv[1:]
    return check_kernels(name, paths) if form == "kernels" else check_module(name, paths)


def check_module(name: str, paths: Sequence[str]) -> int:
    """Read a program that is to bind a name. Prints the first thing that is wrong, and returns 1 then."""
    trees = _parse(paths)
    if trees is None:
        return 1
    if not any(_binds(node, name) for node in ast.walk(trees[0])):
        return _refuse(f"{name} is not defined in {paths[0]}")
    return 0


def check_kernels(entry_point: str, paths: Sequence[str]) -> int:
    """Read a program that is to hold kernels. Prints the first thing that is wrong, and returns 1 then."""
    trees = _parse(paths)
    if trees is None:
        return 1
    if entry_point not in set(_names(trees[0])):
        return _refuse(f"{entry_point} is not defined in {paths[0]}")
    kernels = [function for tree in trees for function in _kernels(tree)]
    if any(function.name == entry_point for function in kernels):
        return _refuse(f"{entry_point} is a kernel: it must be a Python function that launches kernels")
    if not kernels:
        return _refuse("no kernel: no function is decorated with @triton.jit")
    return 0


def _parse(paths: Sequence[str]) -> list[ast.Module] | None:
    """Return the files' trees; None: the first error was printed."""
    trees: list[ast.Module] = []
    for path in paths:
        try:
            trees.append(ast.parse(Path(path).read_bytes(), path))
        except SyntaxError as error:
            place = f"{path}:{error.lineno or 1} in module: {(error.text or '').strip()}"
            _refuse(place, f"SyntaxError: {error.msg}")
            return None
        except (ValueError, RecursionError, MemoryError) as error:
            _refuse(f"{path}: {type(error).__name__}: {error}")
            return None
    return trees


def _refuse(*lines: str) -> int:
    sys.stderr.write("\n".join(lines) + "\n")
    return 1


def _binds(node: ast.AST, name: str) -> bool:
    """Say whether a node gives something the name, wherever it stands."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name == name
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.alias) and (node.asname or node.name) == name


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module binds at its top level, those in `if` and `try` included."""
    for node in tree.body:
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
