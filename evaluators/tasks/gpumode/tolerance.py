"""The tolerance that a problem's own checker has, read from its text as far as it stands there in numbers.

    check_implementation = make_match_reference(ref_kernel, rtol=2e-2, atol=2e-2)
    def check_implementation(data, output): … verbose_allclose(got, expected, rtol=1e-3, atol=1e-3) …
    def check_implementation(data, output): … scale = n ** 0.5; rtol = 1e-5 * scale …
    RTOL, ATOL = 1e-2, 1e-3

Where it stands there in numbers, the checker itself is not run: our own comparison looks at more. Where it checks
properties (that the factors of a matrix are factors of it), no comparison with one reference's output would do, and the
judge runs it, in its own process, on outputs that no candidate can reach.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

import msgspec

from evaluators.tolerances import STRICT

CHECKER = "check_implementation"
_COMPARES = frozenset({"make_match_reference", "match_reference", "verbose_allclose", "allclose"})
_COMPARES_EXACTLY = frozenset({"verbose_allequal"})
_SAID_BY_TORCH = (1e-5, 1e-8)
"""Of `torch.allclose`, and of the functions that problems' utils model on it."""


class ReadTolerance(msgspec.Struct, frozen=True):
    """A tolerance, and where it comes from."""

    profile: str
    """As `evaluators.tolerances` has it."""
    note: str
    """For the task's notes: one sentence."""
    checks: bool = False
    """It is in no numbers: the problem's own checker says what is right, run by the judge."""


class _Bounds(msgspec.Struct, frozen=True):
    rtol: float
    atol: float
    grows: bool = False
    """With the square root of the number of elements."""


def read_tolerance(reference: ast.Module, utils: ast.Module) -> ReadTolerance:
    """Return what a problem's checker allows.

    Args:
        reference: of `reference.py`.
        utils: of `utils.py`, for the defaults of its functions.
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
    """Yield the bounds of each comparison that a checker makes; null where they are not to be told."""
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
    """Return a number, and whether it is to be multiplied by the root of the number of elements; null: no such form."""
    match value:
        case ast.Constant(value=int() | float() as number):
            return float(number), False
        case ast.Name(id=name) if name in bound:
            return _number(bound[name], {key: one for key, one in bound.items() if key != name})
        case ast.BinOp(left=ast.Constant(value=int() | float() as number), op=ast.Mult(), right=right):
            return (float(number), True) if _is_root_of_size(right, bound) else None
        case _:
            return None


def _is_root_of_size(value: ast.expr, bound: Mapping[str, ast.expr]) -> bool:
    match value:
        case ast.Name(id=name) if name in bound:
            return _is_root_of_size(bound[name], {key: one for key, one in bound.items() if key != name})
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=0.5)):
            return _is_size(left, bound)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr="sqrt"), args=[inner]):
            return _is_size(inner, bound)
        case _:
            return False


def _is_size(value: ast.expr, bound: Mapping[str, ast.expr]) -> bool:
    match value:
        case ast.Name(id=name) if name in bound:
            return _is_size(bound[name], {key: one for key, one in bound.items() if key != name})
        case ast.Call(func=ast.Attribute(attr="numel")):
            return True
        case _:
            return False


def _defaults_in(utils: ast.Module) -> dict[str, _Bounds]:
    """Return the default bounds of functions that compare."""
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
