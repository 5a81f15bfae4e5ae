"""Reads the calling and the comparison of a GPUMode reference, and writes the problem file around it. Runs nothing.

- `read_contract(reference, utils, harness, shown)`: generator, arguments, tolerance, room for outputs, passes
- `write_problem(contract, cases, flags, lists)`
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from evaluators.judge.check.tolerances import STRICT
from messages.base import ConfigError

_CHECK = (
    "",
    "",
    'AS_DRAWN = ["data"]',
    "",
    "",
    "def check_outputs(data, output):",
    "    return complaint_of(reference.check_implementation(data, output))",
)
"""Data that the problem does not draw may lack properties that its checker relies on (symmetry)."""
HELPERS = "upstream_case"
"""Module with the helpers of a generated file, besides the competition's `reference`."""


def write_problem(
    contract: Contract, cases: Sequence[Sequence[str]], *, flags: Sequence[str], lists: Sequence[str]
) -> str:
    """Return a problem file.

    Args:
        contract: call form of the reference.
        cases: names of each case's arguments.
        flags: arguments that are false in a case: the competition's harness passes them as strings, which are true.
        lists: arguments that are lists, given as literals.
    """
    lines = [
        '"""A problem of the GPUMode competition: `reference` is the competition\'s own module, unchanged."""',
        "",
        *(["import ast", ""] if lists else []),
        "from torch import nn",
        "",
        "import reference",
        *([f"from {HELPERS} import {', '.join(needed)}"] if (needed := _needed(contract, flags)) else []),
        *(["", f"PASSES = {contract.passes!r}"] if contract.passes else []),
        "",
        "",
        *_model(contract),
        "",
        "",
        *_generator(contract, cases, flags=flags, lists=lists),
        "",
        "",
        "def get_init_inputs():",
        "    return []",
        *(_CHECK if contract.tolerance.checks else []),
    ]
    return "\n".join(lines) + "\n"


def _needed(contract: Contract, flags: Sequence[str]) -> list[str]:
    wanted = {
        "as_handed_out": bool(flags),
        "complaint_of": contract.tolerance.checks,
        "drawn": contract.takes_seed,
        "like_rooms": bool(contract.rooms),
        "with_rooms": bool(contract.rooms),
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _model(contract: Contract) -> list[str]:
    lines = ["class Model(nn.Module):", "    def forward(self, data):"]
    if contract.passes:
        call = "reference.reference_forward(logits, targets), reference.reference_backward(logits, targets, upstream)"
        return [*lines, "        logits, targets, upstream = data", f"        return {call}"]
    if contract.rooms:
        rooms = ", ".join(f"data[{place}]" for place in contract.rooms)
        return [*lines, f"        return like_rooms(reference.ref_kernel(data), [{rooms}])"]
    return [*lines, "        return reference.ref_kernel(data)"]


def _generator(
    contract: Contract, cases: Sequence[Sequence[str]], *, flags: Sequence[str], lists: Sequence[str]
) -> list[str]:
    """Return `get_inputs`. Arguments that only some cases have get None as default."""
    names = tuple(dict.fromkeys(name for case in cases for name in case))
    always = [name for name in names if all(name in case for case in cases)]
    sometimes = [name for name in names if name not in always]
    signature = ", ".join((*always, *(f"{name}=None" for name in sometimes)))
    values = [f"{name!r}: {_value(name, contract, lists)}" for name in always]
    values += [f"{name!r}: {value}" for name, value in contract.given.items() if name not in names]
    if contract.takes_seed and "seed" not in names:
        values.append("'seed': drawn(0)")
    lines = [f"def get_inputs({signature}):", f"    given = {{{', '.join(values)}}}"]
    for name in sometimes:
        lines += [f"    if {name} is not None:", f"        given[{name!r}] = {_value(name, contract, lists)}"]
    make = f"reference.{contract.generator}"
    data = f"as_handed_out({make}, given, {list(flags)!r})" if flags else f"{make}(**given)"
    if contract.rooms:
        data = f"with_rooms({data}, {list(contract.rooms)!r})"
    return [*lines, f"    return [{data}]"]


def _value(name: str, contract: Contract, lists: Sequence[str]) -> str:
    if name == "seed" and contract.takes_seed:
        return "drawn(seed)"
    return f"ast.literal_eval({name})" if name in lists else name


Function: TypeAlias = ast.FunctionDef
_MAKES_ROOM = frozenset({"empty", "empty_like"})
_FORWARD, _BACKWARD = "reference_forward", "reference_backward"


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """Call form of a problem."""

    generator: str
    """`generate_input` or `generate_inputs`."""
    arguments: tuple[str, ...]
    """Arguments of the generator, by name."""
    given: dict[str, int]
    """Arguments that `eval.py` passes and no case gives: `batch_size` of a problem with a fixed batch there."""
    rooms: tuple[int, ...] = ()
    """Positions in the generated tuple of uninitialised tensors for the outputs."""
    passes: tuple[str, ...] = ()
    """Names that a submission must define instead of `custom_kernel`: the forward, then the backward pass."""
    tolerance: ReadTolerance

    @property
    def takes_seed(self) -> bool:
        """True if the generator takes a seed."""
        return "seed" in self.arguments


def read_contract(reference: str, utils: str, harness: str, shown: str) -> Contract:
    """Return the contract of a reference.

    Args:
        reference: text of `reference.py`.
        utils: text of `utils.py`, or empty.
        harness: text of `eval.py`, or empty.
        shown: name of the reference in messages.

    Raises:
        ConfigError: it is not Python, or has none of the known contracts.
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
    """Return the tree of a Python text.

    Raises:
        ConfigError: it is not Python.
    """
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ConfigError(f"{shown!r}, line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise ConfigError(f"{shown!r} is no Python text: {error}") from error


def imported_modules(text: str, shown: str) -> frozenset[str]:
    """Return the first names of all imports in a Python text.

    Raises:
        ConfigError: it is not Python.
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
    """Return the names that a Python text defines, assigns or imports at its top level.

    Raises:
        ConfigError: it is not Python.
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
    """Return the tree of a file that only helps to understand another; an empty tree if it is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def _argument_names(function: Function) -> tuple[str, ...]:
    return tuple(one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs))


def _given_by(harness: ast.Module, generator: Function) -> dict[str, int]:
    """Return whole numbers that `eval.py` passes by position to the generator, from its own constants."""
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
    """Return the names of the two functions that `eval.py` requires of a submission: strings with these endings."""
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
    """Yield the positions in a returned tuple of tensors from `torch.empty` that were not used otherwise."""
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
    """Return the expression on which `.contiguous()` is called."""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr="contiguous"), args=[]):
            return _without_layout(inner)
        case _:
            return value


CHECKER = "check_implementation"
_COMPARES = frozenset({"make_match_reference", "match_reference", "verbose_allclose", "allclose"})
_COMPARES_EXACTLY = frozenset({"verbose_allequal"})
_SAID_BY_TORCH = (1e-5, 1e-8)
"""Defaults of `torch.allclose`, and of the functions in problems' utils that follow it."""


class ReadTolerance(msgspec.Struct, frozen=True):
    """A tolerance, and its source."""

    profile: str
    """Name of the profile in `evaluators.judge.check.tolerances`."""
    note: str
    """A sentence for the task's notes."""
    checks: bool = False
    """True if it is not in numbers: the problem's own checker decides, run by the judge."""


class _Bounds(msgspec.Struct, frozen=True):
    rtol: float
    atol: float
    grows: bool = False
    """True if it grows with the square root of the number of elements."""


def read_tolerance(reference: ast.Module, utils: ast.Module) -> ReadTolerance:
    """Return the tolerance of a problem's checker.

    Args:
        reference: tree of `reference.py`.
        utils: tree of `utils.py`, for the defaults of its functions.
    """
    constants = _module_numbers(reference)
    if {"RTOL", "ATOL"} <= set(constants):
        return _told(_Bounds(constants["RTOL"], constants["ATOL"]), "RTOL and ATOL of reference.py")
    checker = _checker_of(reference)
    defaults = _defaults_in(utils)
    found = [*_compared_in(checker, defaults)] if checker is not None else []
    if found and None not in found:
        bounds = [one for one in found if one is not None]
        tightest = min(bounds, key=lambda one: (one.rtol, one.atol))
        return _told(tightest, f"{CHECKER} of reference.py")
    if checker is not None and _names_called(checker) & _COMPARES_EXACTLY:
        return ReadTolerance("gpumode:0,0", f"Tolerance: none, as {CHECKER} of reference.py compares exactly.")
    if checker is not None:
        return ReadTolerance(
            STRICT,
            f"Correctness: {CHECKER} of reference.py states no tolerance that can be read from its text (it checks "
            "properties of the output, or computes its bounds). The judge runs it, in its own process and on copies.",
            checks=True,
        )
    return ReadTolerance(
        STRICT,
        f"Tolerance: reference.py has no {CHECKER}; outputs are compared with the reference's, under the `strict` "
        "profile.",
    )


def _told(bounds: _Bounds, where: str) -> ReadTolerance:
    profile = f"gpumode:{bounds.rtol:g},{bounds.atol:g}" + (",sqrt" if bounds.grows else "")
    growing = ", both times the square root of the output's number of elements" if bounds.grows else ""
    return ReadTolerance(profile, f"Tolerance: rtol {bounds.rtol:g} and atol {bounds.atol:g}{growing}, from {where}.")


def _checker_of(reference: ast.Module) -> ast.AST | None:
    for node in reference.body:
        match node:
            case ast.FunctionDef(name=name) if name == CHECKER:
                return node
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == CHECKER:
                return value
            case _:
                pass
    return None


def _compared_in(checker: ast.AST, defaults: Mapping[str, _Bounds]) -> Iterator[_Bounds | None]:
    """Yield the bounds of each comparison in a checker; None where they are unknown."""
    bound = {
        target.id: node.value
        for node in ast.walk(checker)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(checker):
        if not isinstance(node, ast.Call) or _name_of(node.func) not in _COMPARES:
            continue
        told = {one.arg: one.value for one in node.keywords}
        default = defaults.get(_name_of(node.func), _Bounds(*_SAID_BY_TORCH))
        rtol = _number(told["rtol"], bound) if "rtol" in told else (default.rtol, False)
        atol = _number(told["atol"], bound) if "atol" in told else (default.atol, False)
        if rtol is None or atol is None or rtol[1] != atol[1]:
            yield None
        else:
            yield _Bounds(rtol[0], atol[0], rtol[1])


def _number(value: ast.expr, bound: Mapping[str, ast.expr]) -> tuple[float, bool] | None:
    """Return a number, and whether it is multiplied by the root of the number of elements; null: another form."""
    match _followed(value, bound):
        case ast.Constant(value=int() | float() as number):
            return float(number), False
        case ast.BinOp(left=ast.Constant(value=int() | float() as number), op=ast.Mult(), right=right):
            return (float(number), True) if _is_root_of_size(right, bound) else None
        case _:
            return None


def _is_root_of_size(value: ast.expr, bound: Mapping[str, ast.expr]) -> bool:
    match _followed(value, bound):
        case ast.BinOp(left=inner, op=ast.Pow(), right=ast.Constant(value=0.5)):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr="sqrt"), args=[inner]):
            pass
        case _:
            return False
    match _followed(inner, bound):
        case ast.Call(func=ast.Attribute(attr="numel")):
            return True
        case _:
            return False


def _followed(value: ast.expr, bound: Mapping[str, ast.expr]) -> ast.expr:
    """Return the expression that a name stands for; each name is followed once."""
    followed = set[str]()
    while isinstance(value, ast.Name) and value.id in bound and value.id not in followed:
        followed.add(value.id)
        value = bound[value.id]
    return value


def _defaults_in(utils: ast.Module) -> dict[str, _Bounds]:
    """Return the default bounds of comparing functions."""
    found: dict[str, _Bounds] = {}
    for node in utils.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = node.args.args[len(node.args.args) - len(node.args.defaults) :]
        told = {
            one.arg: default.value
            for one, default in zip(arguments, node.args.defaults, strict=True)
            if isinstance(default, ast.Constant) and isinstance(default.value, float)
        }
        if {"rtol", "atol"} <= set(told):
            found[node.name] = _Bounds(told["rtol"], told["atol"])
    if "match_reference" in found:
        found["make_match_reference"] = found["match_reference"]
    return found


def _module_numbers(module: ast.Module) -> dict[str, float]:
    return {
        target.id: float(node.value.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int | float)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _names_called(checker: ast.AST) -> set[str]:
    return {_name_of(node.func) for node in ast.walk(checker) if isinstance(node, ast.Call)}


def _name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
