"""The coder's side of the rules: add the action's transformations to the plan of the base, write the program.

A first attempt takes a likely parameter; later ones go through the others in an order that depends on seed, action and
draw. When none is left the answer says so in prose, which the parser reports as an unusable answer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from hashlib import blake2b

import msgspec

from actors.llm.offline.cpp.codegen import write_source
from actors.llm.offline.graph import NoRuleError, Program
from actors.llm.offline.moves import BY_NAME, PARAMETERS, applied, known_moves, with_needs
from actors.llm.offline.plan import Plan, plan_words, read_plan
from actors.llm.offline.program import read_program
from actors.llm.offline.reading import CoderPrompt, read_coder_prompt

_NAMED = re.compile(r"Add to the plan: `([^`]*)`")
_KEYWORDS = (
    ("fuse", r"fus(?:e|ing)|single pass|one pass"),
    ("threads", r"thread|parallel|openmp"),
    ("vectorise", r"vectori[sz]|simd|avx"),
    ("accumulators", r"accumulators|partial sums"),
    ("keep", r"row buffer|keep .*values"),
    ("stream", r"streaming|non-temporal|past the cache"),
    ("unroll", r"unroll"),
    ("columns", r"column block|blocks? of columns|tile"),
    ("prefetch", r"prefetch"),
)
"""How other planners may word what the rules know."""
_TUNING = re.compile(r"\bvary\b|\btune\b", re.IGNORECASE)


def code_answer(prompt: str, *, seed: int) -> str:
    """Answer a coder's prompt: a sentence and a fenced program, or prose that says what there is no rule for."""
    try:
        asked = read_coder_prompt(prompt)
        program = read_program(asked.task.source, asked.task.tensors)
    except NoRuleError as error:
        return f"The built-in rules cannot write this program: they have no rule for {error}."
    base = read_plan(asked.base) or Plan()
    names = _moves_of(asked, program)
    plan = _chosen(asked, program, base, names, seed)
    if plan is None:
        return "The built-in rules have no further variant of this action: all parameters that they know were tried."
    source = write_source(program, plan, asked.contract)
    added = ", ".join(BY_NAME[name].title.lower() for name in sorted(names)) or "other parameters"
    return (
        f"On top of `{plan_words(base) or 'the plain loops'}`: {added}. The plan is now `{plan_words(plan)}`.\n\n"
        f"```cpp path=kernel.cpp\n{source}```\n"
    )


def _moves_of(asked: CoderPrompt, program: Program) -> frozenset[str]:
    """Return the transformations that the action names, in the rules' own words or in others, with what they need."""
    known = {move.name for move in known_moves(program)}
    said = _NAMED.search(asked.description)
    if said is not None:
        return with_needs(name for name in said[1].split() if name in BY_NAME)
    if _TUNING.search(asked.title):
        return frozenset()
    text = f"{asked.title}\n{asked.description}".lower()
    return with_needs(name for name, pattern in _KEYWORDS if name in known and re.search(pattern, text))


def _chosen(asked: CoderPrompt, program: Program, base: Plan, names: frozenset[str], seed: int) -> Plan | None:
    """Return the plan of this attempt; None if every variant was tried."""
    safe = _safeguards(asked)
    seen = {base if asked.base else None, read_plan(asked.latest)}
    key = f"{seed}|{asked.node_id}|{asked.title}|{asked.draw}"
    own = sorted(name for name in names if name in PARAMETERS)
    fresh = (msgspec.structs.replace(plan, **safe) for plan in _variants(base, names, own, program, key))
    remaining = itertools.islice((plan for plan in fresh if plan not in seen), asked.attempts, None)
    return next(remaining, None)


def _safeguards(asked: CoderPrompt) -> dict[str, bool]:
    """After a wrong result: sums in double precision first, then libm's functions too."""
    if "wrong" not in asked.failure:
        return {}
    failed = read_plan(asked.latest) or Plan()
    return {"wide": True, "exact": failed.wide}


def _variants(base: Plan, names: frozenset[str], own: list[str], program: Program, key: str) -> Iterator[Plan]:
    """Yield plans without repetition, tier by tier.

    The action's own parameters; one other number along with them, or the action carried further by one more
    transformation; two other numbers.
    """
    plan = applied(base, names, {})
    others = _other_parameters(plan, own, program)
    further = [with_needs([move.name]) for move in known_moves(program) if not getattr(plan, move.name)]
    tiers: tuple[Callable[[], list[Plan]], ...] = (
        lambda: _numbered(base, names, own, others, 0),
        lambda: [*_numbered(base, names, own, others, 1), *(applied(plan, more - names, {}) for more in further)],
        lambda: _numbered(base, names, own, others, 2),
    )
    yielded: set[Plan] = set()
    for tier in tiers:
        for variant in sorted(tier(), key=lambda variant: _rank(key, variant)):
            if variant not in yielded:
                yielded.add(variant)
                yield variant


def _numbered(base: Plan, names: frozenset[str], own: list[str], others: list[str], extra: int) -> list[Plan]:
    """Return plans with all values of the own numbers and of `extra` others."""
    return [
        applied(base, {*names, *fields}, dict(zip([*own, *fields], values, strict=True)))
        for fields in itertools.combinations(others, extra)
        for values in itertools.product(*(PARAMETERS[name] for name in [*own, *fields]))
    ]


def _other_parameters(plan: Plan, own: list[str], program: Program) -> list[str]:
    """Return numbers of the plan that mean something for it, besides the action's own."""
    known = {move.name for move in known_moves(program)}
    return [
        name
        for name in PARAMETERS
        if name in known and name not in own and all(getattr(plan, need) for need in BY_NAME[name].needs)
    ]


def _rank(key: str, plan: Plan) -> bytes:
    return blake2b(f"{key}|{plan_words(plan)}".encode(), digest_size=8).digest()
