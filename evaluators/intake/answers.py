"""Answers that compute nothing, put through a task's own check: does any of them pass?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch

from evaluators.judge.draws import Draws
from evaluators.judge.families import DataMaker, DataSet, new_seed
from evaluators.judge.problem import Tensors
from messages.intake import TrivialAnswer

Answer: TypeAlias = Callable[[DataSet], Tensors]
"""Says what it would write for a data set."""

_CALLS = 64
"""Where outputs are drawn at random: an answer that is the same in so many calls is none."""

ZEROS, STALE, MEAN = "zeros", "the output for other inputs", "the mean everywhere"


class Bank:
    """Trivial answers to a task."""

    def __init__(self, maker: DataMaker) -> None:
        """Run the reference once, on inputs that no answer is tried on.

        Raises:
            ProblemError: it fails.
        """
        problem = maker.problem
        other = maker.bare("given", new_seed())
        stale = problem.reference(other.inputs, other.state)
        self.other = other
        self.answers: dict[str, Answer] = {
            ZEROS: lambda _: tuple(torch.zeros_like(output) for output in stale),
            STALE: lambda _: stale,
            MEAN: lambda _: tuple(_mean(output) for output in stale),
        }
        for index, spec in enumerate(problem.tensors[: len(other.inputs)]):
            if all(_fits(other.inputs[index], output) for output in stale):
                self.answers[f"input {spec.name}"] = _input(index, copies=len(stale))


def try_answer(name: str, answer: Answer, sets: Iterator[DataSet]) -> tuple[TrivialAnswer, bool]:
    """Put an answer through data sets until it fails.

    Returns:
        What came of it, and whether it passed on the first data set at least.
    """
    draws = Draws()
    for place, data in enumerate(sets):
        wrong = wrong_share(answer(data), data)
        if wrong > 0:
            return TrivialAnswer(name=name, passes=False, wrong_share=wrong), place > 0
        if data.positions is not None:
            draws.add(data.positions([answer(data)] * _CALLS))
    if draws.complaint():
        return TrivialAnswer(name=name, passes=False, wrong_share=1.0), True
    return TrivialAnswer(name=name, passes=True, wrong_share=0.0), True


def wrong_share(outputs: Tensors, data: DataSet) -> float:
    """Return the share of all output elements that the check finds wrong: all, where it speaks of no elements."""
    if data.complaint is not None:
        return 1.0 if data.complaint(outputs) else 0.0
    pairs = zip(outputs, data.expected, data.allowed, strict=True)
    wrong = sum(int(allowed.errors(output, expected).wrong.sum()) for output, expected, allowed in pairs)
    return wrong / sum(output.numel() for output in outputs)


def _input(index: int, *, copies: int) -> Answer:
    return lambda data: (data.inputs[index],) * copies


def _fits(tensor: torch.Tensor, output: torch.Tensor) -> bool:
    return tensor.shape == output.shape and tensor.dtype == output.dtype


def _mean(output: torch.Tensor) -> torch.Tensor:
    mean = float(output.double().nan_to_num().mean())
    return torch.full_like(output, mean if output.is_floating_point() else math.floor(mean + 0.5))
