"""Transformations as actions: their names, when they apply, what they add to a plan.

A language has a catalogue for each kind of program that it can write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Generic, TypeAlias, TypeVar

import msgspec

from actors.llm.offline.graph import Program
from actors.llm.offline.plan import Plan
from actors.llm.offline.stages.ir import Staged

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
