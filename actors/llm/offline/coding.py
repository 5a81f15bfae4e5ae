"""The coder's side of the rules: add the action's transformations to the plan of the base, write the program.

A first attempt takes a likely parameter; later ones go through the others in an order that depends on seed, action and
draw. When none is left the answer says so.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from hashlib import blake2b

import msgspec

from actors.llm.offline.graph import NoRuleError
from actors.llm.offline.languages import catalogue_of, known_moves, write_source
from actors.llm.offline.plan import Plan, plan_words, read_plan
from actors.llm.offline.program import read_program
from actors.llm.offline.reading import CoderPrompt, read_coder_prompt
from actors.llm.offline.stages.ir import AnyProgram

_NAMED = re.compile(r"Add to the plan: `([^`]*)`")
_TUNING = re.compile(r"\bvary\b|\btune\b", re.IGNORECASE)
_ALONG = 2
"""Attempts of an action that also change one, and then two, numbers of what was there before."""
_SAFEGUARDS = 2
"""Attempts that only treat numbers with more care after a wrong result."""
_PLAIN = Plan()


def code_answer(prompt: str, *, seed: int) -> str:
    """Answer a coder's prompt: a sentence and a fenced program, or prose that says what there is no rule for."""
    try:
        asked = read_coder_prompt(prompt)
        task = asked.task
        programs = [read_program(task.source, tensors, name) for name, tensors in task.several]
        return _Coder(asked, programs, seed).answer()
    except NoRuleError as error:
        return f"The built-in rules cannot write this program: they have no rule for {error}."


class _Coder:
    """One answer under construction."""

    def __init__(self, asked: CoderPrompt, programs: list[AnyProgram], seed: int) -> None:
        self._asked = asked
        self._programs = programs
        program = programs[asked.task.largest]
        self._key = f"{seed}|{asked.node_id}|{asked.title}|{asked.draw}"
        self._catalogue = catalogue_of(asked.contract.language, program)
        self._known = known_moves(asked.contract.language, program)
        self._base = read_plan(asked.base) or Plan()
        self._names = self._moves_of_action()
        self._own = sorted(name for name in self._names if name in self._catalogue.parameters)

    def answer(self) -> str:
        """Return the answer.

        Raises:
            NoRuleError: the program holds something that the language has no rule for.
        """
        plan = self._chosen()
        if plan is None:
            return "Nothing further: all variants of this action that the built-in rules know were tried."
        fence, source = write_source(self._programs, plan, self._asked.contract)
        titles = [self._catalogue.by_name[name].title.lower() for name in sorted(self._names)]
        return (
            f"On top of `{plan_words(self._base) or 'the plain loops'}`: {', '.join(titles) or 'other parameters'}. "
            f"The plan is now `{plan_words(plan)}`.\n\n```{fence}\n{source}```\n"
        )

    def _moves_of_action(self) -> frozenset[str]:
        """Return what the action names, in the rules' own words or in others, with what it needs."""
        asked, catalogue = self._asked, self._catalogue
        known = {move.name for move in self._known}
        said = _NAMED.search(asked.description)
        if said is not None:
            return catalogue.with_needs(name for name in said[1].split() if name in catalogue.by_name)
        if self._is_tuning:
            return frozenset()
        text = f"{asked.title}\n{asked.description}".lower()
        return catalogue.with_needs(
            name for name, pattern in catalogue.keywords if name in known and re.search(pattern, text)
        )

    def _chosen(self) -> Plan | None:
        """Return the plan of this attempt; None if every variant was tried."""
        safe = _safeguards(self._asked)
        seen = {self._base if self._asked.base else None, read_plan(self._asked.latest)}
        fresh = (msgspec.structs.replace(plan, **safe) for plan in self._variants())
        tried = max(0, self._asked.attempts - _SAFEGUARDS) if safe else self._asked.attempts
        remaining = itertools.islice((plan for plan in fresh if plan not in seen), tried, None)
        return next(remaining, None)

    def _variants(self) -> Iterator[Plan]:
        """Yield plans without repetition, tier by tier: the own parameters, one other number along with them, two.

        An action does what it says: it adds its own transformations and no others. Numbers of transformations that the
        plan has already are varied with it a few times; a variation of numbers is free to try all of them.
        """
        others = self._other_parameters(self._catalogue.applied(self._base, self._names, {}))
        yielded: set[Plan] = set()
        for extra in range(3):
            fresh = 0
            for variant in sorted(self._numbered(others, extra), key=lambda variant: _rank(self._key, variant)):
                if variant not in yielded and (self._is_tuning or not extra or fresh < _ALONG):
                    fresh += 1
                    yielded.add(variant)
                    yield variant

    @property
    def _is_tuning(self) -> bool:
        return _TUNING.search(self._asked.title) is not None

    def _numbered(self, others: list[str], extra: int) -> list[Plan]:
        """Return plans with all values of the own numbers and of `extra` others."""
        values_of = self._catalogue.parameters
        return [
            self._catalogue.applied(
                self._base, {*self._names, *fields}, dict(zip([*self._own, *fields], values, strict=True))
            )
            for fields in itertools.combinations(others, extra)
            for values in itertools.product(*(values_of[name] for name in [*self._own, *fields]))
        ]

    def _other_parameters(self, plan: Plan) -> list[str]:
        """Return numbers that mean something for the plan, besides the action's own; new ones only for a variation."""
        known = {move.name: move for move in self._known}
        return [
            name
            for name in self._catalogue.parameters
            if name in known
            and name not in self._own
            and (getattr(plan, name) != getattr(_PLAIN, name) or self._is_tuning)
            and all(getattr(plan, need) for need in known[name].needs)
        ]


def _safeguards(asked: CoderPrompt) -> dict[str, bool]:
    """After a wrong result: sums in double precision first, then libm's functions too."""
    if "wrong" not in asked.failure:
        return {}
    failed = read_plan(asked.latest) or Plan()
    return {"wide": True, "exact": failed.wide}


def _rank(key: str, plan: Plan) -> bytes:
    return blake2b(f"{key}|{plan_words(plan)}".encode(), digest_size=8).digest()
