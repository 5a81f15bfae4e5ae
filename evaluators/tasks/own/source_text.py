"""A function or class of a running program as the text of a file of its own.

It comes with the imports, functions, classes and constants of its module that it names, directly or not. Reads source
and calls nothing.

- `standalone(defined) -> str`, raises ConfigError
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence

from messages.base import ConfigError


def standalone(defined: Callable[..., object] | type) -> str:
    """Return the text of a file that defines the same thing.

    Raises:
        ConfigError: its source is not to be had, or it does not stand at the top level of a file.
    """
    name = defined.__name__
    try:
        text = inspect.getsource(inspect.getmodule(defined) or defined)
    except (OSError, TypeError) as error:
        raise ConfigError(
            f"{name!r}: its source is not to be had ({error}); write it in a file, it is read as text"
        ) from error
    tree = ast.parse(text)
    statements = {defined: node for node in tree.body for defined in _defined_by(node)}
    if defined.__qualname__ != name or not isinstance(statements.get(name), ast.FunctionDef | ast.ClassDef):
        raise ConfigError(f"{name!r} must be defined at the top level of a file with def or class: it is read as text")
    wanted, waiting = set[ast.stmt](), [name]
    while waiting:
        node = statements.get(waiting.pop())
        if node is None or node in wanted:
            continue
        wanted.add(node)
        waiting += _names_of(node, without_decorators=node is statements[name])
    return "".join(_written(text, [node for node in tree.body if node in wanted], statements[name]))


def _defined_by(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement of a file defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in aliases)
        case ast.Assign(targets=targets):
            yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            pass


def _names_of(node: ast.stmt, *, without_decorators: bool) -> list[str]:
    parts: Sequence[ast.AST] = [node]
    if without_decorators and isinstance(node, ast.FunctionDef | ast.ClassDef):
        parts = [child for child in ast.iter_child_nodes(node) if child not in node.decorator_list]
    return [one.id for part in parts for one in ast.walk(part) if isinstance(one, ast.Name)]


def _written(text: str, nodes: Sequence[ast.stmt], target: ast.stmt) -> Iterator[str]:
    """Yield the statements as they stand, the target without its decorators; annotations are not evaluated."""
    lines = text.splitlines(keepends=True)
    yield "from __future__ import annotations\n\n"
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            raise ConfigError(f"line {node.lineno}: relative imports cannot be taken along; import by the whole name")
        decorators = [] if node is target else getattr(node, "decorator_list", [])
        first = min([node.lineno, *(one.lineno for one in decorators)])
        gap = "" if isinstance(node, ast.Import | ast.ImportFrom) else "\n\n"
        body = "".join(lines[first - 1 : node.end_lineno])
        yield gap + (body if body.endswith("\n") else f"{body}\n")
