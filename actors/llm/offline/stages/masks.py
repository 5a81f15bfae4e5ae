"""Finds out which columns of a row stage a mask leaves out: those beyond a position that is known per row.

A column is left out if what the stage stores there is 0 and no reduction is changed by it. Each node's value in such a
column is worked out from the masked one: the maximum of what is left over is finite, so exp(-inf - maximum) is 0, and
so is whatever it is multiplied with. Not covered: rows of which everything is masked; they must be computed in full.
"""

from __future__ import annotations

import math

import msgspec

from actors.llm.offline.graph import REDUCTIONS, Node
from actors.llm.offline.stages.ir import RowStage

_NEGLIGIBLE = -1e30
"""What programs write for minus infinity; exponentials of it are 0 next to any ordinary maximum."""
_NEUTRAL = {"sum": 0.0, "max": -math.inf, "min": math.inf}


class Bound(msgspec.Struct, frozen=True):
    """Columns from a place on are left out: the whole part of node `place`, plus `more`."""

    place: int
    """A node of kind row or scalar."""
    more: int
    """1 if the column at the place itself is still used."""


def bound_of(stage: RowStage) -> Bound | None:
    """Return which columns a stage leaves out; None if it leaves none out, or for no reason known here."""
    for index, node in enumerate(stage.nodes):
        found = _masking(stage, node)
        if found is not None and _is_left_out(stage, index, found[1]):
            return found[0]
    return None


def _masking(stage: RowStage, node: Node) -> tuple[Bound, float] | None:
    """Read `where(column > place, -inf, x)` and the like."""
    if node.op != "where":
        return None
    condition, then, other = (stage.nodes[arg] for arg in node.args)
    if then.op == "const" and then.value <= _NEGLIGIBLE:
        bound = _compared(stage, condition, beyond=True)
        return None if bound is None else (bound, -math.inf)
    if other.op == "const" and other.value <= _NEGLIGIBLE:
        bound = _compared(stage, condition, beyond=False)
        return None if bound is None else (bound, -math.inf)
    return None


def _compared(stage: RowStage, condition: Node, *, beyond: bool) -> Bound | None:
    """Return where the columns begin for which a condition holds (`beyond`) or fails."""
    if condition.op == "eq" and stage.nodes[condition.args[1]] == Node("const"):
        return _compared(stage, stage.nodes[condition.args[0]], beyond=not beyond)
    mirrored = {"gt": "lt", "lt": "gt", "ge": "le", "le": "ge"}
    if condition.op not in mirrored:
        return None
    op, (left, right) = condition.op, condition.args
    if not _is_column(stage, left):
        op, left, right = mirrored[op], right, left
    if not _is_column(stage, left) or stage.nodes[right].kind not in {"row", "scalar"}:
        return None
    wanted = {"gt": 1, "ge": 0} if beyond else {"le": 1, "lt": 0}
    return Bound(right, wanted[op]) if op in wanted else None


def _is_column(stage: RowStage, index: int) -> bool:
    access = stage.nodes[index].access
    return (
        stage.nodes[index].op == "index"
        and access is not None
        and access.offset == 0
        and len(stage.columns) == 1
        and access.strides == (*(0,) * len(stage.rows), 1)
    )


def _is_left_out(stage: RowStage, masked: int, value: float) -> bool:
    found: list[float | None] = []
    for index, node in enumerate(stage.nodes):
        if index == masked:
            found.append(value)
            continue
        args = [found[arg] for arg in node.args]
        if node.op in REDUCTIONS:
            if stage.nodes[node.args[0]].kind in {"full", "vector"} and args[0] != _NEUTRAL[node.op]:
                return False
            found.append(None)
        else:
            found.append(_propagated(node.op, args))
    return found[stage.output] == 0.0


def _propagated(op: str, args: list[float | None]) -> float | None:
    """Return an operation's value in a masked column; None: an ordinary number, which may be anything finite."""
    match op, args:
        case "exp", [value] if value == -math.inf:
            return 0.0
        case (("add" | "sub"), [value, None]) if value == -math.inf:
            return -math.inf
        case "add", [None, value] if value == -math.inf:
            return -math.inf
        case "mul", [left, right] if left == 0.0 or right == 0.0:
            return 0.0
        case "div", [left, None] if left == 0.0:
            return 0.0
        case _:
            return None
