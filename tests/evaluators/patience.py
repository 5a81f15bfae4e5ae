"""What a test does where this host is too busy to tell a time: ask again a few times, then be skipped and say so.

What happens to times on a steady host is measured by `scripts/bench_evaluator`; how a judge tells that a host is not
steady is tested in tests/evaluators/judge, with clocks of the tests' own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from messages.verdicts import Unstable, Verdict

TRIES = 4


async def patiently(ask: Callable[[], Awaitable[Verdict]]) -> Verdict:
    """Return the first verdict that is not `unstable`; skip the test if there is none in four."""
    verdict = await ask()
    for _ in range(TRIES - 1):
        if not isinstance(verdict, Unstable):
            break
        verdict = await ask()
    if isinstance(verdict, Unstable):
        too_busy(verdict.reason)
    return verdict


def too_busy(why: str) -> NoReturn:
    """Skip the test: nothing can be timed on this host, and why."""
    pytest.skip(f"this host is too busy to time on: {why}")
