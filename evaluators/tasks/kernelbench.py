"""KernelBench's problem format: a Python file that defines `Model`, `get_inputs` and `get_init_inputs`.

`Model(*get_init_inputs())` is a torch module; `model(*get_inputs())` is the reference. Source of the format:
github.com/ScalingIntelligence/KernelBench, `KernelBench/level*/`. Here it is only parsed; the judge runs it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from messages.errors import ConfigError

REQUIRED = ("Model", "get_inputs", "get_init_inputs")


def check_problem(text: str, shown: str) -> None:
    """Accept a text that parses and defines the three names at its top level.

    Args:
        text: the file.
        shown: how to call it in messages.

    Raises:
        ConfigError: it does not.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"problem file {shown!r}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"problem file {shown!r} is no Python text: {error}") from error
    defined = set(_names(tree.body))
    missing = [name for name in REQUIRED if name not in defined]
    if missing:
        raise ConfigError(
            f"problem file {shown!r} does not define {', '.join(missing)}; "
            "a problem defines Model, get_inputs and get_init_inputs"
        )


def find_problem(root: Path, level: int, problem_id: int) -> Path:
    """Return the file of a problem in a KernelBench checkout: `level{N}/{ID}_{Name}.py`, also below `KernelBench/`.

    Raises:
        ConfigError: there is no such problem.
    """
    folders = [folder for folder in (root / "KernelBench", root) if (folder / f"level{level}").is_dir()]
    if not folders:
        raise ConfigError(f"{str(root)!r} holds no level{level}/: it is no KernelBench checkout, or has no such level")
    found = sorted((folders[0] / f"level{level}").glob(f"{problem_id}_*.py"))
    if len(found) != 1:
        count = "no" if not found else str(len(found))
        raise ConfigError(
            f"{str(folders[0] / f'level{level}')!r} holds {count} problem {problem_id} ({problem_id}_….py)"
        )
    return found[0]


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what the statements define in their module."""
    for statement in body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=aliases):
                yield from (alias.asname or alias.name for alias in aliases)
            case ast.If(body=inner, orelse=other):
                yield from _names(inner)
                yield from _names(other)
            case _:
                pass
