"""Says of a verdict on which of several workloads it came about, and of a hidden one nothing that would tell it."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from messages.verdicts import (
    Crashed,
    DidNotBuild,
    Measured,
    Outpaced,
    Quarantined,
    Rejected,
    TimedOut,
    Unstable,
    Verdict,
    Wrong,
)

HELD_OUT = "a held-out workload"
"""What a hidden workload is called wherever an author of candidates may read of it."""

Failure = TypeVar("Failure", bound=Verdict)
_Stopped = Crashed | DidNotBuild | Rejected | TimedOut | Unstable | Quarantined


def named(verdict: Failure, workload: str, *, hidden: bool = False) -> Failure:
    """Return a verdict that says where it came about.

    Args:
        verdict: on one workload.
        workload: its name; empty: there is one, and nothing is to be said.
        hidden: of a hidden one neither its name nor any number is told: they would give its shape away.
    """
    if hidden:
        return _veiled(verdict)
    if not workload or not isinstance(verdict, Wrong | _Stopped):
        return verdict
    if isinstance(verdict, DidNotBuild):
        return msgspec.structs.replace(verdict, reason=f"workload {workload!r}: {verdict.reason}")
    return msgspec.structs.replace(verdict, reason=f"workload {workload!r}: {verdict.reason}", workload=workload)


def with_printed(verdict: Failure, printed: str) -> Failure:
    """Return a verdict that tells what the candidate printed, if verdicts of its kind do."""
    is_told = isinstance(verdict, Measured | Outpaced | Wrong)
    return msgspec.structs.replace(verdict, printed=printed) if is_told else verdict


def _veiled(verdict: Failure) -> Failure:
    if isinstance(verdict, Wrong):
        return msgspec.structs.replace(
            verdict,
            reason=f"wrong on {HELD_OUT}: it must hold for other shapes than those that are shown",
            wrong_elements=0,
            elements=0,
            first_wrong=(),
            max_abs_error=0.0,
            patterns=(),
            printed="",
        )
    if isinstance(verdict, Crashed):
        reason = f"it failed on {HELD_OUT}: it must hold for other shapes than those that are shown"
        return msgspec.structs.replace(verdict, reason=reason, log="")
    if isinstance(verdict, TimedOut):
        return msgspec.structs.replace(verdict, reason=f"stopped after {verdict.limit_s:g} s on {HELD_OUT}")
    if isinstance(verdict, Rejected):
        return msgspec.structs.replace(verdict, reason=f"rejected on {HELD_OUT} (rule: {verdict.rule})")
    return verdict
