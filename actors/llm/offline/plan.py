"""Plans of a program: the transformations that it uses, and the moves that change a plan.

A source carries its plan in a comment, from which the rules read it when they are shown the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import msgspec

from actors.llm.offline.stages import Program

_COMMENT = re.compile(r"^(?://|#) plan:(?P<words>[^\n]*)$", re.MULTILINE)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a program. The default is plain: one loop per stage and one thread."""

    fuse: bool = False
    """C++: stages with the same rows run together, block by block, so nothing between them goes to memory."""
    threads: bool = False
    """C++: blocks of rows are shared among OpenMP threads."""
    vectorise: bool = False
    """C++: loops are written for SIMD, with exponentials and similar functions inlined as polynomials."""
    keep: bool = False
    """C++: costly values that a later loop over the row needs are kept in a buffer."""
    wide: bool = False
    """Sums are accumulated in double precision."""
    exact: bool = False
    """Exponentials and similar functions are as exact as libm's."""
    stream: bool = False
    """Outputs are written past the caches."""
    rows: int = 0
    """Rows per block; 0: derived from the size of a row."""
    pack: bool = False
    """C++: operands of contractions with an unfavourable layout are first copied into panels, vector by vector."""
    skip: bool = False
    """C++: columns that a mask excludes from a reduction are neither computed nor used."""
    dynamic: bool = False
    """C++: blocks of rows are given to the next free thread."""
    reuse: bool = False
    """C++: workspaces are kept from one call to the next."""
    tile: int = 1
    """C++: rows that a contraction computes at once, each with its own accumulators."""
    lanes: int = 1
    """C++: vectors of columns that a contraction computes at once."""
    warps: int = 0
    """Triton: warps per program; 0: derived from the size of a block of rows."""
    persistent: int = 0
    """Triton: programs that take one block of rows after the other; 0: a program per block."""
    early: bool = False
    """Triton: all inputs of a row are loaded before its first reduction."""


def plan_comment(plan: Plan, mark: str = "//") -> str:
    """Return the plan as one comment line that begins with `mark`."""
    return f"{mark} plan: {plan_words(plan)}".rstrip()


def plan_words(plan: Plan) -> str:
    """Return the differences from the plain form, in words; empty if there are none."""
    words = []
    for name in Plan.__struct_fields__:
        value = getattr(plan, name)
        if value is True:
            words.append(name)
        elif value != getattr(_PLAIN, name):
            words.append(f"{name}={value}")
    return " ".join(words)


def read_plan(source: str) -> Plan | None:
    """Return the plan in a source's comment; None if it has none. Unknown words are ignored."""
    found = _COMMENT.search(source)
    if found is None:
        return None
    values: dict[str, bool | int] = {}
    for word in found["words"].split():
        name, _, number = word.partition("=")
        if name not in Plan.__struct_fields__:
            continue
        if isinstance(getattr(_PLAIN, name), bool):
            values[name] = True
        elif re.fullmatch(r"[1-9]\d{0,5}", number):
            values[name] = int(number)
    return msgspec.convert(values, Plan)


_PLAIN = Plan()


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One transformation."""

    name: str
    """Field of the plan that it sets."""
    title: str
    why: str
    difficulty: int
    priority: float
    """V before any measurement."""
    needs: tuple[str, ...] = ()
    """Moves that must come before it."""
    applies: Callable[[Program], bool] = lambda _: True


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The transformations of one language."""

    moves: tuple[Move, ...]
    parameters: Mapping[str, tuple[int, ...]]
    """Numeric fields of a plan, and the values that are tried."""
    at_once: frozenset[str]
    """Transformations that a first program may apply all at once; hard to get right, so of moderate V."""
    keywords: tuple[tuple[str, str], ...]
    """Other planners' wording of these transformations: moves and regular expressions."""

    @cached_property
    def by_name(self) -> Mapping[str, Move]:
        """The moves by their names."""
        return {move.name: move for move in self.moves}

    @cached_property
    def by_title(self) -> Mapping[str, Move]:
        """The moves by their titles."""
        return {move.title: move for move in self.moves}

    def known_moves(self, program: Program) -> tuple[Move, ...]:
        """Return the moves that make sense for a program."""
        return tuple(move for move in self.moves if move.applies(program))

    def with_needs(self, names: Iterable[str]) -> frozenset[str]:
        """Return the moves with all moves that they need."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self.by_name[name].needs)
        return frozenset(found)

    def applied(self, plan: Plan, names: Iterable[str], values: Mapping[str, int]) -> Plan:
        """Return the plan with moves added; `values` gives the numbers of moves that have one."""
        numbers = self.parameters
        changes = {name: values.get(name, numbers[name][0]) if name in numbers else True for name in names}
        return msgspec.structs.replace(plan, **changes)
