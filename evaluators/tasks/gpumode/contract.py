"""What a problem's `reference.py` defines, read from its text: nothing is run.

Two kinds of contract exist. In most problems `generate_input(**case)` makes one value, `ref_kernel(data)` is the
reference and a submission's `custom_kernel(data)` takes its place. In problems with a forward and a backward pass
`generate_inputs(…)` makes a tuple, `reference_forward` and `reference_backward` are the references, and a submission
defines two functions of its own names, which are those that `eval.py` asks for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from evaluators.tasks.gpumode.tolerance import ReadTolerance, read_tolerance
from messages.base import ConfigError

Function: TypeAlias = ast.FunctionDef
_MAKES_ROOM = frozenset({"empty", "empty_like"})
_FORWARD, _BACKWARD = "reference_forward", "reference_backward"


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """How a problem is called."""

    generator: str
    """`generate_input` or `generate_inputs`."""
    arguments: tuple[str, ...]
    """Of the generator, by name."""
    given: dict[str, int]
    """Arguments that no case gives and `eval.py` does: `batch_size` of a problem whose batch is fixed there."""
    rooms: tuple[int, ...] = ()
    """Places of the generated tuple that are uninitialised tensors for the outputs."""
    passes: tuple[str, ...] = ()
    """Names that a submission must define instead of `custom_kernel`: of the forward, then the backward pass."""
    tolerance: ReadTolerance

    @property
    def takes_seed(self) -> bool:
        """Whether the generator is told a seed."""
        return "seed" in self.arguments


def read_contract(reference: str, utils: str, harness: str, shown: str) -> Contract:
    """Return the contract that a reference keeps.

    Args:
        reference: text of `reference.py`.
        utils: text of `utils.py`, or empty.
        harness: text of `eval.py`, or empty.
        shown: how to call the reference in messages.

    Raises:
        ConfigError: it is no Python, or keeps none of the known contracts.
    """
    tree = parse(reference, shown)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    asked = _parsed_or_empty(harness)
    tolerance = read_tolerance(tree, _parsed_or_empty(utils))
    if "ref_kernel" in functions and "generate_input" in functions:
        generator = functions["generate_input"]
        return Contract(
            generator=generator.name,
            arguments=_argument_names(generator),
            given=_given_by(asked, generator),
            rooms=tuple(_rooms_of(generator)),
            tolerance=tolerance,
        )
    if {_FORWARD, _BACKWARD, "generate_inputs"} <= set(functions):
        generator = functions["generate_inputs"]
        return Contract(
            generator=generator.name,
            arguments=_argument_names(generator),
            given=_given_by(asked, generator),
            passes=_passes_asked_for(asked, shown),
            tolerance=tolerance,
        )
    raise ConfigError(
        f"{shown!r} defines neither generate_input and ref_kernel, nor generate_inputs, reference_forward and "
        "reference_backward: no known kind of GPUMode problem"
    )


def parse(text: str, shown: str) -> ast.Module:
    """Return a Python text's tree.

    Raises:
        ConfigError: it is none.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{shown!r}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"{shown!r} is no Python text: {error}") from error


def imported_modules(text: str, shown: str) -> frozenset[str]:
    """Return the first names of what a Python text imports anywhere.

    Raises:
        ConfigError: it is no Python.
    """
    found: set[str] = set()
    for node in ast.walk(parse(text, shown)):
        match node:
            case ast.Import(names=names):
                found.update(one.name.partition(".")[0] for one in names)
            case ast.ImportFrom(module=str(module), level=0):
                found.add(module.partition(".")[0])
            case _:
                pass
    return frozenset(found)


def defined_names(text: str, shown: str) -> frozenset[str]:
    """Return what a Python text defines, assigns or imports at its top level.

    Raises:
        ConfigError: it is no Python.
    """
    found: set[str] = set()
    for statement in parse(text, shown).body:
        match statement:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom(names=names):
                found.update(one.asname or one.name for one in names)
            case _:
                pass
    return frozenset(found)


def _parsed_or_empty(text: str) -> ast.Module:
    """Return the tree of a file that only helps to understand another; an empty one where it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _argument_names(function: Function) -> tuple[str, ...]:
    return tuple(one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))


def _given_by(harness: ast.Module, generator: Function) -> dict[str, int]:
    """Return whole numbers that `eval.py` gives by position to the generator, from constants of its own."""
    constants = {
        target.id: node.value.value
        for node in harness.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and type(node.value.value) is int
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names = _argument_names(generator)
    found: dict[str, int] = {}
    for node in ast.walk(harness):
        match node:
            case ast.Call(func=ast.Name(id=name), args=args) if name == generator.name:
                for argument, value in zip(names, args, strict=False):
                    if isinstance(value, ast.Name) and value.id in constants:
                        found[argument] = constants[value.id]
            case _:
                pass
    return found


def _passes_asked_for(harness: ast.Module, shown: str) -> tuple[str, ...]:
    """Return the names of the two functions that `eval.py` wants of a submission: the texts that end so.

    Raises:
        ConfigError: it does not say.
    """
    texts = [node.value for node in ast.walk(harness) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    found = tuple(
        next((text for text in texts if text.isidentifier() and text.endswith(ending)), "")
        for ending in ("_forward", "_backward")
    )
    if not all(found):
        raise ConfigError(
            f"{shown!r} has a forward and a backward reference, but its eval.py does not say what a submission is to "
            "define for them"
        )
    return found


def _rooms_of(generator: Function) -> Iterator[int]:
    """Yield the places of a returned tuple that hold what `torch.empty` gave and nobody else used."""
    returns = [node.value for node in ast.walk(generator) if isinstance(node, ast.Return)]
    if len(returns) != 1 or not isinstance(returns[0], ast.Tuple):
        return
    used = [node.id for node in ast.walk(generator) if isinstance(node, ast.Name)]
    empty = {
        target.id
        for node in ast.walk(generator)
        if isinstance(node, ast.Assign) and _is_room(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for place, item in enumerate(returns[0].elts):
        name = _without_layout(item)
        if isinstance(name, ast.Name) and name.id in empty and used.count(name.id) == len(("bound", "returned")):
            yield place


def _is_room(value: ast.expr) -> bool:
    match _without_layout(value):
        case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr=attr)):
            return attr in _MAKES_ROOM
        case _:
            return False


def _without_layout(value: ast.expr) -> ast.expr:
    """Return what `.contiguous()` is called on."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="contiguous"), args=[]):
            return _without_layout(inner)
        case _:
            return value
