"""A wrong output: how it is told."""

from __future__ import annotations

import torch

from evaluators.judge.arena import is_poison
from evaluators.judge.compare import describe_wrong
from messages.verdicts import Wrong


class WrongOutputError(Exception):
    """An output is wrong; carries the verdict."""

    def __init__(self, verdict: Wrong) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def say_wrong(
    family: str, name: str, out: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor, worst: float
) -> Wrong:
    """Return the verdict on an output: how many elements, the first of them, what they have in common.

    Args:
        family: where the inputs came from.
        name: the output's.
        out: what the candidate wrote.
        expected: what it should have written; of the same shape.
        wrong: mask of the wrong elements, at least one.
        worst: largest absolute error.
    """
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
        max_abs_error=worst,
        patterns=describe_wrong(out, expected, wrong),
    )
