"""A scripted coder: how likely its programs are correct, and how good, depends on what they build on."""

from __future__ import annotations

import math
import random

from msgspec.structs import replace

from messages.commands import WriteMode
from messages.verdicts import DidNotBuild, TimedOut, Verdict, Wrong
from tests.landscape.landscape import TECHNIQUES, Landscape, Program, with_technique

CODER_NOISE = 0.25
"""Spread of the coder's own opinion of each technique around the truth."""
CODER_HEAT = 0.15
"""Temperature with which it chooses by that opinion."""
DEBUG_HELP = 0.15
"""By which a failing program's next try is likelier to be correct."""
IMPROVE_CHANCE = 0.85
"""That a change to a correct program leaves it correct."""
OWN_IDEA = 0.3
"""Share of improvements, and of attempts without an action, that try a technique instead of tuning."""
TUNING_STEP = (0.05, 0.15)
"""Mean and spread of what one round of tuning brings."""
FAILURES = (0.4, 0.5, 0.1)
"""Shares of what does not build, is wrong, and hangs, among what fails."""
FIRST_TUNING = (2.0, 5.0)
"""Beta distribution of the tuning of a new technique's first version."""


class Draft(Program, frozen=True):
    """A program and what an evaluator will say of it if it is not correct."""

    failure: Verdict | None = None
    chance: float = 0.0
    """Of being correct; debugging starts from it."""


class Coder:
    """Writes programs of one landscape."""

    def __init__(self, landscape: Landscape, seed: int) -> None:
        self._landscape = landscape
        self._draw = random.Random(f"coder {seed}")
        self._opinion = [effect + self._draw.gauss(0.0, CODER_NOISE) for effect in landscape.effects]
        self._serial = 0

    def write(self, mode: WriteMode, technique: int | None, base: Program | None, current: Draft | None) -> Draft:
        """Return the next program.

        Args:
            mode: as a branch asks for it.
            technique: what the action says; None: the coder may do as it likes.
            base: what to build on; None: the reference.
            current: the branch's latest attempt, where it is not the base.
        """
        origin = base or Program(frozenset(), 0.0, 0)
        match mode:
            case "debug" if current is not None:
                return self._finished(current, current.chance + DEBUG_HELP)
            case "improve":
                if self._draw.random() < OWN_IDEA:
                    return self._added(origin, self._choice(origin))
                return self._finished(self._tuned(origin), IMPROVE_CHANCE)
            case _:
                if technique is None and base is not None and self._draw.random() >= OWN_IDEA:
                    return self._finished(self._tuned(origin), IMPROVE_CHANCE)
                return self._added(origin, self._choice(origin) if technique is None else technique)

    def direct(self) -> Draft:
        """Return an attempt from the reference with as many techniques as the coder dares, as best-of-N draws them."""
        draft = self.write("apply", None, None, None)
        while self._draw.random() < 0.5:
            chance = draft.chance * self._landscape.chance(choice := self._choice(draft), draft.techniques)
            draft = self._finished(replace(draft, techniques=with_technique(draft.techniques, choice)), chance)
        return draft

    def _added(self, origin: Program, technique: int) -> Draft:
        techniques = with_technique(origin.techniques, technique)
        tuning = self._draw.betavariate(*FIRST_TUNING)
        chance = self._landscape.chance(technique, origin.techniques)
        return self._finished(Program(techniques, max(tuning, origin.tuning * 0.8), 0), chance)

    def _tuned(self, origin: Program) -> Program:
        tuning = origin.tuning + self._draw.gauss(*TUNING_STEP)
        return Program(origin.techniques, min(1.0, max(0.0, tuning)), 0)

    def _choice(self, origin: Program) -> int:
        absent = [technique for technique in range(TECHNIQUES) if technique not in origin.techniques]
        weights = [math.exp(self._opinion[technique] / CODER_HEAT) for technique in absent]
        return self._draw.choices(absent, weights)[0]

    def _finished(self, program: Program, chance: float) -> Draft:
        self._serial += 1
        failures: tuple[Verdict, ...] = (
            DidNotBuild(reason="error"),
            Wrong(reason="wrong"),
            TimedOut(reason="hangs", stage="call", limit_s=1),
        )
        is_correct = self._draw.random() < chance
        failure = None if is_correct else self._draw.choices(failures, FAILURES)[0]
        return Draft(program.techniques, program.tuning, self._serial, failure, min(chance, 1.0))
