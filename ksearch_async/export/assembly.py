"""Puts a module together from parts: files of `parts/`, which are ordinary code here, and values for `parts/facts.py`.

Imports of ours are dropped, the others gathered at the top. All parts share one name space, so no name may be defined
twice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

_PARTS = Path(__file__).parent / "parts"
_OURS = "ksearch_async"
_PURPOSE = "Part of exported modules: "
_LAST_IMPORT = "torch"
_LATE = ("REFERENCE", "RECEIPT")
"""Facts that are long, and nothing to read first."""
_LINT = re.compile(r"  # (?:noqa|type: ignore)\b.*$", re.MULTILINE)


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `parts/`."""

    name: str
    purpose: str
    """Its docstring."""
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    """Statements, without those of our own modules."""
    body: str
    defines: tuple[str, ...]


def read_part(name: str) -> Part:
    """Read a part."""
    text = (_PARTS / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    behind = max(node.end_lineno or 0 for node in imports)
    return Part(
        name=name,
        purpose=(ast.get_docstring(tree) or "").removeprefix(_PURPOSE),
        imports=tuple(node for node in imports if not _is_ours(node)),
        body=_LINT.sub("", "".join(text.splitlines(keepends=True)[behind:])).strip("\n"),
        defines=tuple(name for name in map(_name_of, tree.body) if name),
    )


def assemble(header: str, facts: Mapping[str, object], front: str, names: Iterable[str], back: str) -> str:
    """Return a module's text.

    Args:
        header: its docstring.
        facts: values for the constants of `parts/facts.py` that it needs.
        front: code that comes before the parts.
        names: the parts, in order.
        back: the part that comes last.
    """
    parts = [read_part(name) for name in (*names, back)]
    _check_names([read_part("facts"), *parts])
    *sections, last = (f"{_comment(part.purpose)}\n\n\n{part.body}" for part in parts)
    early, late = (
        "\n".join(f"{name} = {literal(value)}" for name, value in facts.items() if (name in _LATE) is is_late)
        for is_late in (False, True)
    )
    imports = "\n".join(_import_lines(node for part in parts for node in part.imports))
    top = f"{docstring(header)}\n\nfrom __future__ import annotations\n\n{imports}\n\n{early}"
    return "\n\n\n".join((top, front, *sections, late, last)) + "\n"


def _import_lines(statements: Iterable[ast.Import | ast.ImportFrom]) -> Iterator[str]:
    """Yield each import once, those of one module in one line."""
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
    """Return a docstring's source."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"""{escaped}\n"""'


def literal(value: object) -> str:
    """Return the source of a value; texts of several lines stay readable where that is exact."""
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
    """Say whether a literal is this text, also after it was written to a file and read again."""
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


def _check_names(parts: list[Part]) -> None:
    seen: dict[str, str] = {}
    for part in parts:
        for name in part.defines:
            if name in seen:
                raise AssertionError(f"parts {seen[name]!r} and {part.name!r} both define {name!r}")
            seen[name] = part.name


def _comment(text: str) -> str:
    return "\n".join(f"# {line}".rstrip() for line in (text[:1].upper() + text[1:]).splitlines())
