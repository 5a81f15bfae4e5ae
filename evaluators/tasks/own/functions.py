"""Plain Python functions as references, read from files or from a running program. Calls none of them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from messages.base import ConfigError
from messages.tasks import SourceFile

_NAMED = re.compile(r"(?P<path>[\w./-]+\.py):(?P<function>[A-Za-z_]\w*)")
_MOST_BYTES = 1 << 20


class Function(msgspec.Struct, frozen=True):
    """A function of a file."""

    path: str
    """Relative to the folder, with forward slashes."""
    name: str
    arguments: tuple[str, ...]
    required: int
    """Number of them without a default."""
    takes_more: bool
    """True if it has `*args` or `**kwargs`."""

    @property
    def module(self) -> str:
        """Name under which the file is imported."""
        return self.path.removesuffix(".py").replace("/", ".")


def read_function(folder: Path, named: str, where: str) -> Function:
    """Return the function named by `FILE.py:FUNCTION`.

    Raises:
        ConfigError: there is none.
    """
    found = _NAMED.fullmatch(named)
    if found is None or ".." in named or named.startswith("/"):
        raise ConfigError(f'{where}: {named!r} is not of the form "FILE.py:FUNCTION", a file beside the task.toml')
    path = found["path"].removeprefix("./")
    tree = _parsed(folder / path, where)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if (function := functions.get(found["function"])) is None:
        there = ", ".join(functions) or "it defines none"
        raise ConfigError(f"{where}: {path!r} defines no function {found['function']!r} (there are: {there})")
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    return Function(
        path=path,
        name=function.name,
        arguments=tuple(one.arg for one in positional),
        required=len(positional) - len(given.defaults),
        takes_more=given.vararg is not None or given.kwarg is not None,
    )


def files_for(folder: Path, paths: Sequence[str], where: str) -> tuple[SourceFile, ...]:
    """Return files of a folder with the neighbouring files that they import, directly or not.

    Raises:
        ConfigError: one cannot be read, or they are too large together.
    """
    waiting, found = list(dict.fromkeys(paths)), dict[str, str]()
    while waiting:
        path = waiting.pop()
        tree = _parsed(folder / path, where)
        found[path] = (folder / path).read_text(encoding="utf-8")
        waiting += [one for one in _beside(folder, path, tree) if one not in found and one not in waiting]
    if sum(map(len, found.values())) > _MOST_BYTES:
        raise ConfigError(f"{where}: the reference and what it imports are larger than 1 MiB")
    return tuple(SourceFile(path=path, text=text) for path, text in sorted(found.items()))


def _parsed(path: Path, where: str) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{where}: cannot read {str(path)!r}: {error.strerror}") from error
    except SyntaxError as error:
        raise ConfigError(f"{str(path)!r}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"{str(path)!r} is no Python text: {error}") from error


def _beside(folder: Path, path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the folder's files that a file imports."""
    package = path.split("/")[:-1]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    yield from _files_of(folder, alias.name.split("."))
            case ast.ImportFrom(module=module, level=level, names=aliases):
                base = package[: len(package) - level + 1] if level else []
                parts = [*base, *(module.split(".") if module else [])]
                yield from _files_of(folder, parts)
                for alias in aliases:
                    yield from _files_of(folder, [*parts, alias.name])
            case _:
                pass


def _files_of(folder: Path, parts: Sequence[str]) -> Iterator[str]:
    """Yield the files of the folder that importing a module runs."""
    for depth in range(1, len(parts) + 1):
        joined = "/".join(parts[:depth])
        for candidate in (f"{joined}/__init__.py", f"{joined}.py"):
            if (folder / candidate).is_file():
                yield candidate


def standalone(defined: Callable[..., object] | type) -> str:
    """Return the text of a file that defines the same object.

    Raises:
        ConfigError: its source cannot be read, or it is not at the top level of a file.
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
    """Yield the statements unchanged, the target without its decorators; annotations are not evaluated."""
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
