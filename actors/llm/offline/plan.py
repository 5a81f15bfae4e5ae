"""Plans of a program: the transformations that it uses, and the moves that change a plan.

The comment is how the rules read code that they are shown: what they would otherwise have to infer from it.

A language has a catalogue for each kind of program that it can write.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

import msgspec

from actors.llm.offline.graph import Program
from actors.llm.offline.stages.ir import Staged

_COMMENT = re.compile(r"^(?://|#) plan:(?P<words>[^\n]*)$", re.MULTILINE)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is written. The default is the plain way: a loop per operation, temporaries, one thread."""

    fuse: bool = False
    """A row is gone through once per reduction and once for the outputs; nothing but outputs is stored."""
    threads: bool = False
    """Rows are shared among OpenMP threads."""
    vectorise: bool = False
    """Loops over columns are written for SIMD, with exponentials and the like inlined as polynomials."""
    keep: bool = False
    """Costly values that a later loop over the row needs again stay in a buffer (else they are computed again)."""
    wide: bool = False
    """Sums are accumulated in double precision."""
    exact: bool = False
    """Exponentials and the like are libm's even where loops are vectorised."""
    stream: bool = False
    """Outputs are written past the caches."""
    accumulators: int = 1
    """Independent partial results per reduction, each over its own part of the row."""
    unroll: int = 1
    """Parts of the row on which the loop that writes the outputs works in turns."""
    rows: int = 0
    """Rows that a thread takes at a time; 0: equal shares."""
    columns: int = 0
    """Columns per block of the loop that writes the outputs; 0: the whole row."""
    prefetch: int = 0
    """Rows ahead of which inputs are prefetched; 0: none."""
    pack: bool = False
    """Operands of contractions that lie badly are copied into panels first, one vector behind the other."""
    skip: bool = False
    """Columns that a mask leaves out of a reduction are neither computed nor used."""
    dynamic: bool = False
    """Blocks of rows are handed to whatever thread is free."""
    reuse: bool = False
    """Workspaces are kept from one call to the next."""
    tile: int = 1
    """Rows that a contraction works on at once, each with its own accumulators."""
    lanes: int = 1
    """Vectors of columns that a contraction works on at once."""
    warps: int = 0
    """Triton: warps per program; 0: by the size of a block of rows, for products Triton's own choice."""
    stages: int = 0
    """Triton: loads ahead in a loop; 0: Triton's own choice."""
    persistent: int = 0
    """Triton: programs that take one block of rows after the other; 0: a program per block."""
    block_m: int = 0
    """Triton: rows of a product's tile; 0: few."""
    block_n: int = 0
    """Triton: columns of a product's tile; 0: few."""
    block_k: int = 0
    """Triton: products that are summed in one step; 0: few."""
    group: int = 0
    """Triton: rows of tiles that are taken together, so that they share columns in the cache; 0: one."""
    tensor_cores: bool = False
    """Triton: a product of float32 is made of three products of tf32."""
    together: bool = False
    """Triton: products that share an operand, and what follows them, are one kernel."""
    early: bool = False
    """Triton: all that is read of a row that is held on chip is asked for before its first reduction."""
    online: bool = False
    """Triton: the sum of a softmax does not wait for its maximum."""


def plan_comment(plan: Plan, mark: str = "//") -> str:
    """Return the plan as one comment line that begins with `mark`."""
    return f"{mark} plan: {plan_words(plan)}".rstrip()


def plan_words(plan: Plan) -> str:
    """Return what differs from the plain way, in words; empty if nothing does."""
    words = []
    for name in Plan.__struct_fields__:
        value = getattr(plan, name)
        if value is True:
            words.append(name)
        elif value != getattr(_PLAIN, name):
            words.append(f"{name}={value}")
    return " ".join(words)


def read_plan(source: str) -> Plan | None:
    """Return the plan that a source was written by; None if it does not say. Words of others mean nothing here."""
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


AProgram = TypeVar("AProgram", Program, Staged)


class Move(msgspec.Struct, Generic[AProgram], frozen=True, kw_only=True):
    """One transformation."""

    name: str
    """Field of the plan that it sets."""
    title: str
    why: str
    difficulty: int
    priority: float
    """V before anything was measured."""
    needs: tuple[str, ...] = ()
    """Moves that must come before it."""
    applies: Callable[[AProgram], bool]


AnyMove: TypeAlias = Move[Program] | Move[Staged]


class Catalogue(msgspec.Struct, Generic[AProgram], frozen=True, kw_only=True, dict=True):
    """The transformations of one kind of program in one language."""

    moves: tuple[Move[AProgram], ...]
    parameters: Mapping[str, tuple[int, ...]]
    """Fields of a plan that are numbers, and the values that are tried."""
    at_once: frozenset[str]
    """What a first program may also do all at once; hard to get right, so of moderate V."""
    keywords: tuple[tuple[str, str], ...]
    """How other planners may word what the rules know: moves and regular expressions."""

    @cached_property
    def by_name(self) -> Mapping[str, Move[AProgram]]:
        """The moves by their names."""
        return {move.name: move for move in self.moves}

    @cached_property
    def by_title(self) -> Mapping[str, Move[AProgram]]:
        """The moves by their titles."""
        return {move.title: move for move in self.moves}

    def known_moves(self, program: AProgram) -> tuple[Move[AProgram], ...]:
        """Return the moves that make sense for a program."""
        return tuple(move for move in self.moves if move.applies(program))

    def with_needs(self, names: Iterable[str]) -> frozenset[str]:
        """Return the moves and whatever must come before them."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting.extend(self.by_name[name].needs)
        return frozenset(found)

    def applied(self, plan: Plan, names: Iterable[str], values: Mapping[str, int]) -> Plan:
        """Return the plan with moves added; `values` gives the numbers of those that have one."""
        numbers = self.parameters
        changes = {name: values.get(name, numbers[name][0]) if name in numbers else True for name in names}
        return msgspec.structs.replace(plan, **changes)
