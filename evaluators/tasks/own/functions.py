"""Functions in the files beside a `task.toml`: found, checked against the inputs, and what they import. Runs nothing.

- `read_function(folder, named, where) -> Function`, raises ConfigError
- `files_for(folder, paths) -> files`, raises ConfigError
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from messages.base import ConfigError
from messages.tasks import SourceFile

_NAMED = re.compile(r"(?P<path>[\w./-]+\.py):(?P<function>[A-Za-z_]\w*)")
_MAX_BYTES = 1 << 20


class Function(msgspec.Struct, frozen=True):
    """A function of a file."""

    path: str
    """Relative to the folder, with forward slashes."""
    name: str
    arguments: tuple[str, ...]
    required: int
    """How many of them have no default."""
    takes_more: bool
    """Whether it has `*args` or `**kwargs`."""

    @property
    def module(self) -> str:
        """What the file is imported as."""
        return self.path.removesuffix(".py").replace("/", ".")


def read_function(folder: Path, named: str, where: str) -> Function:
    """Return the function that `FILE.py:FUNCTION` names.

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
    """Return files of a folder and those beside them that they import, directly or not.

    Raises:
        ConfigError: one cannot be read, or they are too large together.
    """
    waiting, found = list(dict.fromkeys(paths)), dict[str, str]()
    while waiting:
        path = waiting.pop()
        tree = _parsed(folder / path, where)
        found[path] = (folder / path).read_text(encoding="utf-8")
        waiting += [one for one in _beside(folder, path, tree) if one not in found and one not in waiting]
    if sum(map(len, found.values())) > _MAX_BYTES:
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
    """Yield the files that importing a module runs, of those in the folder."""
    for depth in range(1, len(parts) + 1):
        joined = "/".join(parts[:depth])
        for candidate in (f"{joined}/__init__.py", f"{joined}.py"):
            if (folder / candidate).is_file():
                yield candidate
