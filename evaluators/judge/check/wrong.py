"""A wrong output: how it is found, described, and attributed to a workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec
import torch

from evaluators.judge.candidate.candidate import CandidateFailedError
from evaluators.judge.check.compare import Allowed, Errors, describe_wrong
from evaluators.judge.data.arena import is_poison
from evaluators.judge.data.families import DataSet
from evaluators.judge.data.memory import Glimpse
from evaluators.judge.reference.problem import Tensors
from messages.verdicts import (
    CallCheck,
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


class WrongOutputError(Exception):
    """An output is wrong; carries the verdict."""

    def __init__(self, verdict: Wrong) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def say_wrong(family: str, name: str, out: torch.Tensor, expected: torch.Tensor, errors: Errors) -> Wrong:
    """Return the verdict on an output: the number of wrong elements, the first one, and their common pattern."""
    wrong = errors.wrong
    position = int(wrong.view(-1).int().argmax())
    got, want = out.view(-1)[position], expected.view(-1)[position].item()
    shown = "never written" if bool(is_poison(got.reshape(1))) else f"{got.item():.6g}"
    first: list[int] = []
    for size in reversed(out.shape):
        first.insert(0, position % size)
        position //= size
    count = int(wrong.sum())
    index = ", ".join(map(str, first))
    example = f"{name}[{index}] is {shown}, expected {want:.6g}"
    return Wrong(
        reason=f"{count} of {out.numel()} elements of {name} are wrong; {example}",
        family=family,
        wrong_elements=count,
        elements=out.numel(),
        first_wrong=tuple(first),
        max_abs_error=errors.largest,
        patterns=describe_wrong(out, expected, wrong),
    )


def check_output(family: str, name: str, out: torch.Tensor, expected: torch.Tensor, allowed: Allowed) -> CallCheck:
    """Compare one output of a checked call."""
    errors = allowed.errors(out, expected)
    if bool(errors.wrong.any()):
        raise WrongOutputError(say_wrong(family, name, out, expected, errors))
    return CallCheck(
        family=family, max_abs_error=errors.largest, error_ratio=errors.ratio, own_error_ratio=errors.own_ratio
    )


def timed_difference(names: Sequence[str], outputs: Tensors, eager: Tensors, data: DataSet) -> Wrong | None:
    """Compare the outputs of a timed call with the reference's on the same inputs; None if they agree."""
    if data.complaint is not None:
        said = data.complaint(outputs)
        return Wrong(reason=said, family=f"{data.family}, timed call") if said else None
    for name, out, own, allowed in zip(names, outputs, eager, data.allowed, strict=True):
        if not allowed.accepts_beside(out, own):
            return say_wrong(f"{data.family}, timed call", name, out, own, allowed.errors_beside(out, own))
    return None


def refuse_if_wrong(difference: Callable[[], Wrong | None], again: Callable[[], object]) -> None:
    """Refuse a timed call with outputs that differ from the reference's, noting whether a second call is correct."""
    wrong = difference()
    if wrong is None:
        return
    with suppress(CandidateFailedError, WrongOutputError):
        again()
        if difference() is None:
            why = "right when the same inputs were sent again: its result came late, or was kept from an earlier call"
            patterns = ("late or kept", *wrong.patterns)
            wrong = msgspec.structs.replace(wrong, reason=f"{wrong.reason}; {why}", patterns=patterns)
    raise WrongOutputError(wrong)


def refuse_if_unfinished(glimpse: Glimpse, family: str) -> None:
    """Refuse a call if its outputs were still written after its answer."""
    changed, looked_at = glimpse.changed()
    if changed:
        reason = f"it was not finished when it answered: {changed} of {looked_at} elements looked at changed afterwards"
        raise WrongOutputError(Wrong(reason=reason, family=family, patterns=("late or kept",)))


HELD_OUT = "a held-out workload"
"""Name of a hidden workload in all texts for authors."""

Failure = TypeVar("Failure", bound=Verdict)
_Stopped = Crashed | DidNotBuild | Rejected | TimedOut | Unstable | Quarantined


def named(verdict: Failure, workload: str, *, hidden: bool = False) -> Failure:
    """Return a verdict that names its workload."""
    if hidden:
        return _veiled(verdict)
    if not workload or not isinstance(verdict, Wrong | _Stopped):
        return verdict
    if isinstance(verdict, DidNotBuild):
        return msgspec.structs.replace(verdict, reason=f"workload {workload!r}: {verdict.reason}")
    return msgspec.structs.replace(verdict, reason=f"workload {workload!r}: {verdict.reason}", workload=workload)


def with_printed(verdict: Failure, printed: str) -> Failure:
    """Return a verdict with the candidate's output, if its kind has that."""
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
