"""Whether a drafted reference is a computation on tensors and nothing else, from its text: nothing is run.

The judge runs a task's reference as trusted code, with the rights of whoever judges: it is the task's author's. A
draft's author is a model. So nothing of a draft is run, by any process, before it is known to consist of function
definitions, constants, and the words of `vocabulary.py`.

Covered: imports, files, processes, the network, the interpreter's insides, and code made from texts; loops without an
end. Not covered: a computation that takes all of the memory or of an hour (the judge's limits are for those), and one
that is not what was asked for, which a person sees.

- `vet_reference(text: str) -> tuple[str, ...]`
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from evaluators.tasks.own.vocabulary import ATTRIBUTES, BUILTINS, IN_BETWEEN, MODULES

_MOST_BYTES = 32 << 10
_MOST_COMPLAINTS = 12
_STATEMENTS = (
    ast.FunctionDef,
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.For,
    ast.If,
    ast.Expr,
    ast.Pass,
    ast.Break,
    ast.Continue,
    ast.Raise,
    ast.Assert,
)
_AT_TOP = (ast.FunctionDef, ast.Assign, ast.AnnAssign, ast.Import, ast.ImportFrom, ast.Expr)
_PYTHONS = frozenset(dir(builtins))
_NO_EXPRESSIONS = (ast.Lambda, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr, ast.GeneratorExp)


def vet_reference(text: str) -> tuple[str, ...]:
    """Return what a reference's file holds that a draft may not; empty if nothing.

    Args:
        text: of the file.
    """
    if len(text.encode("utf-8", "replace")) > _MOST_BYTES:
        return (f"it is longer than {_MOST_BYTES >> 10} KiB",)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        line = f"line {error.lineno}: " if isinstance(error, SyntaxError) and error.lineno else ""
        return (f"{line}it is no Python: {getattr(error, 'msg', error)}",)
    except (RecursionError, MemoryError):
        return ("it is nested too deeply",)
    found = dict.fromkeys(_Reader(tree).complaints())
    return tuple(found)[:_MOST_COMPLAINTS]


class _Reader:
    """Reads one file."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._modules = {
            name: module
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name, module in _bound(node)
        }
        """What is known by each name that an import binds."""
        self._defined = _assigned_anywhere(tree)

    def complaints(self) -> Iterator[str]:
        """Yield what may not be there."""
        for statement in self._tree.body:
            if not isinstance(statement, _AT_TOP) or (
                isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant)
            ):
                yield f"line {statement.lineno}: at the top of the file stand imports, constants and functions only"
        for name in sorted(self._defined):
            if name in self._modules or name in _PYTHONS or name.startswith("__"):
                yield f"{name!r} is a name of Python's own or of an import; use another"
        covered = set[ast.AST]()
        # A node begins no later than what it is made of, so this order keeps an attribute before its owner.
        for node in sorted(ast.walk(self._tree), key=lambda node: getattr(node, "lineno", 0)):
            if node not in covered:
                yield from self._of(node, covered)

    def _of(self, node: ast.AST, covered: set[ast.AST]) -> Iterator[str]:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield from self._of_import(node)
            case ast.FunctionDef(decorator_list=[_, *_], lineno=line):
                yield f"line {line}: leave out decorators"
            case ast.stmt() if not isinstance(node, _STATEMENTS):
                yield f"line {node.lineno}: leave out {_called(node)!r}"
            case ast.expr() if isinstance(node, _NO_EXPRESSIONS):
                yield f"line {node.lineno}: leave out {_called(node)!r}"
            case ast.Attribute():
                yield from self._of_attribute(node, covered)
            case ast.Name(id=name, lineno=line):
                yield from self._of_name(name, line)
            case _:
                pass

    def _of_import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if node not in self._tree.body:
            yield f"line {node.lineno}: import at the top of the file"
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
        for _, module in _bound(node):
            if module not in MODULES and module not in IN_BETWEEN and not _is_word(module):
                yield (
                    f"line {node.lineno}: {module!r} cannot be imported; there are torch, torch.nn.functional, "
                    "torch.linalg, torch.special, torch.fft and math"
                )

    def _of_attribute(self, node: ast.Attribute, covered: set[ast.AST]) -> Iterator[str]:
        """See what is taken of a module, or of a value; nothing may be put there."""
        if not isinstance(node.ctx, ast.Load):
            yield f"line {node.lineno}: '.{node.attr}' is assigned to; assign to names and elements only"
        owner = self._module_of(node.value)
        if owner is None:
            if node.attr.removesuffix("_") not in ATTRIBUTES:
                yield f"line {node.lineno}: '.{node.attr}' is none of the methods that a draft may use"
            return
        covered.update(ast.walk(node.value))
        whole = f"{owner}.{node.attr}"
        if not _is_word(whole) and whole not in MODULES and whole not in IN_BETWEEN:
            yield f"line {node.lineno}: {whole!r} is none of the operations that a draft may use"

    def _of_name(self, name: str, line: int) -> Iterator[str]:
        """See that a name is a value's: modules stand before a dot only."""
        module = self._modules.get(name)
        if module is not None and not _is_word(module):
            yield f"line {line}: the module {name!r} is used as a value; write what is taken of it"
        elif name.startswith("__") or (module is None and name not in self._defined and name not in BUILTINS):
            yield f"line {line}: {name!r} is not defined, or none of the functions that a draft may call"

    def _module_of(self, node: ast.expr) -> str | None:
        """Return the module that an expression names; None if it is none."""
        match node:
            case ast.Name(id=name):
                module = self._modules.get(name)
                return module if module in MODULES or module in IN_BETWEEN else None
            case ast.Attribute(value=value, attr=name):
                owner = self._module_of(value)
                whole = f"{owner}.{name}"
                return whole if owner is not None and (whole in MODULES or whole in IN_BETWEEN) else None
            case _:
                return None


def _is_word(whole: str) -> bool:
    """Say whether a dotted name is an operation of a module that may be used."""
    module, _, name = whole.rpartition(".")
    return name in MODULES.get(module, ())


def _bound(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the names that an import binds, and what each stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            elif alias.name in MODULES or alias.name in IN_BETWEEN:
                # `import torch.linalg` binds `torch`.
                yield alias.name.partition(".")[0], alias.name.partition(".")[0]
            else:
                yield alias.name, alias.name
        return
    for alias in node.names:
        yield alias.asname or alias.name, f"{'.' * node.level}{node.module or ''}.{alias.name}"


def _assigned_anywhere(tree: ast.Module) -> set[str]:
    """Return the names of functions, arguments and what is assigned to."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case _:
                pass
    return found


def _called(node: ast.AST) -> str:
    return {"With": "with", "While": "while", "ClassDef": "class", "GeneratorExp": "a generator"}.get(
        type(node).__name__, type(node).__name__.lower()
    )
