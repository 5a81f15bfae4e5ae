"""Reads a module candidate without executing it: a stdlib-only script for `python -I -S`.

Its arguments are the class's name and the candidate's Python files, the main one first. Found: what is no Python, and a
main file that binds no such name.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path


def main() -> int:
    """Check the files named as arguments. Returns an exit code."""
    name, *paths = sys.argv[1:]
    return check(name, paths)


def check(name: str, paths: Sequence[str]) -> int:
    """Print the first thing that is wrong with a candidate's files, and return 1 then.

    Args:
        name: what the main file is to bind.
        paths: the files, the main one first.
    """
    trees: list[ast.Module] = []
    for path in paths:
        try:
            trees.append(ast.parse(Path(path).read_bytes(), path))
        except SyntaxError as error:
            place = f"{path}:{error.lineno or 1} in module: {(error.text or '').strip()}"
            return _refuse(place, f"SyntaxError: {error.msg}")
        except (ValueError, RecursionError, MemoryError) as error:
            return _refuse(f"{path}: {type(error).__name__}: {error}")
    if not any(_binds(node, name) for node in ast.walk(trees[0])):
        return _refuse(f"{name} is not defined in {paths[0]}")
    return 0


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name == name
    if isinstance(node, ast.Name):
        return node.id == name and isinstance(node.ctx, ast.Store)
    return isinstance(node, ast.alias) and (node.asname or node.name) == name


def _refuse(*lines: str) -> int:
    sys.stderr.write("\n".join(lines) + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
