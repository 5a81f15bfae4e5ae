"""Made-up optimisation problems whose best answers are known: what a strategy finds in them says how it searches.

A program is a set of techniques and how well they are tuned. In a *structured* landscape its speedup follows from the
techniques: each has an effect of its own, and some pairs pay only together, though one of the two costs something by
itself, so that the way to the best programs leads through worse ones. In a *flat* landscape nothing follows from
anything: a program's speedup is a draw of its own, and no picture of the problem can help.

All constants were chosen before any result was seen. Effects are natural logarithms of speedups.
"""

from __future__ import annotations

import math
import random
from typing import Literal, TypeAlias

import msgspec

Kind: TypeAlias = Literal["structured", "flat"]

TECHNIQUES, FAMILIES = 24, 8
"""Three techniques of a family exclude each other, as three tilings do."""
PAIRS, GATED_PAIRS = 12, 8
"""Pairs that pay together; in those that are gated, one of the two alone makes the program slower."""
EFFECT_MEAN, EFFECT_SPREAD = 0.10, 0.18
GATE_COST = (0.10, 0.30)
PAIR_GAIN = (0.25, 0.60)
EASE = (0.30, 0.90)
"""Chance that one attempt at a technique is correct."""
COMPLEXITY = 0.97
"""By which that chance falls for each technique that is there already."""
ROUGHNESS = 0.03
TUNING_GAIN = 0.25
"""Effect of tuning from 0 to 1."""
FLAT_SPREAD = 0.35


class Program(msgspec.Struct, frozen=True):
    """What a coder wrote."""

    techniques: frozenset[int]
    tuning: float
    """0 to 1."""
    serial: int
    """Makes the text of every program its own."""


class Landscape:
    """One problem."""

    def __init__(self, seed: int, kind: Kind = "structured") -> None:
        self.kind = kind
        self._seed = seed
        draw = random.Random(f"landscape {seed}")
        self.effects = [draw.gauss(EFFECT_MEAN, EFFECT_SPREAD) for _ in range(TECHNIQUES)]
        self.ease = [draw.uniform(*EASE) for _ in range(TECHNIQUES)]
        possible = [(a, b) for b in range(TECHNIQUES) for a in range(b) if family(a) != family(b)]
        chosen = draw.sample(possible, PAIRS)
        self.pairs = {pair: draw.uniform(*PAIR_GAIN) for pair in chosen}
        for pair in chosen[:GATED_PAIRS]:
            self.effects[draw.choice(pair)] = -draw.uniform(*GATE_COST)

    def effect(self, program: Program) -> float:
        """Return the logarithm of a correct program's true speedup."""
        if self.kind == "flat":
            return random.Random(f"{self._seed} {program}").gauss(0.0, FLAT_SPREAD)
        present = program.techniques
        roughness = random.Random(f"{self._seed} {sorted(present)}").gauss(0.0, ROUGHNESS)
        alone = sum(self.effects[technique] for technique in present)
        together = sum(gain for (a, b), gain in self.pairs.items() if a in present and b in present)
        return alone + together + roughness + TUNING_GAIN * program.tuning

    def chance(self, technique: int, base: frozenset[int]) -> float:
        """Return how likely one attempt to add a technique is correct."""
        return self.ease[technique] * COMPLEXITY ** len(base)

    def best_known(self) -> float:
        """Return what a greedy climb over pairs of techniques reaches, well tuned: a landmark, not a bound."""
        if self.kind == "flat":
            return FLAT_SPREAD * math.sqrt(2 * math.log(1000))
        present: frozenset[int] = frozenset()
        while True:
            options = [with_technique(present, a) for a in range(TECHNIQUES)]
            options += [with_technique(option, b) for option in options for b in range(TECHNIQUES)]
            best = max(options, key=self._tuned)
            if self._tuned(best) <= self._tuned(present):
                return self._tuned(present)
            present = best

    def _tuned(self, techniques: frozenset[int]) -> float:
        return self.effect(Program(techniques, 1.0, 0))


def family(technique: int) -> int:
    """Return which family a technique belongs to."""
    return technique % FAMILIES


def with_technique(techniques: frozenset[int], added: int) -> frozenset[int]:
    """Return the set with one more technique, which takes the place of the others of its family."""
    return frozenset({added, *(kept for kept in techniques if family(kept) != family(added))})
