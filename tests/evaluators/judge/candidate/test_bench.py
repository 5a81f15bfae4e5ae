"""Untimed calls among the timed ones: they come in pairs, so that a candidate that counts calls learns nothing."""

from __future__ import annotations

import os
from typing import cast

import pytest
import torch

from evaluators.judge.candidate.bench import Bench, Calls
from evaluators.judge.candidate.candidate import CandidateSide
from evaluators.judge.candidate.side import Answer
from evaluators.judge.data.arena import PLACES
from evaluators.judge.data.families import GIVEN, DataSet
from evaluators.judge.data.memory import make_buffers
from messages.tasks import TensorSpec

PAIRS = 64
TENSORS = [
    TensorSpec(name="x", role="input", shape=(4, 8), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4, 8), dtype="float32"),
]


class StandInProblem:
    device = "cpu"


class StandInBench:
    """What `Calls` asks a bench for."""

    problem = StandInProblem()
    place = None
    call_limit_s = evaluation_limit_s = 60.0

    def __init__(self) -> None:
        self.buffers = make_buffers([TENSORS])[0]


class StandInSide:
    """A candidate that copies its input; `found` has the arrangement and the input's value of each call."""

    pid, empty_ns = os.getpid(), 0

    def __init__(self, bench: StandInBench) -> None:
        self.bench, self._buffers = bench, bench.buffers
        self.found: list[tuple[int, float]] = []

    def turn_to(self, place: object) -> None:
        pass

    def hold(self, state: object) -> None:
        pass

    def call_limit_s(self, limit_s: float) -> float:
        return limit_s

    def call(self, *, limit_s: float) -> Answer:  # noqa: ARG002 - as a side
        (x,), (output,) = self._buffers.inputs.tensors, self._buffers.outputs.tensors
        output.copy_(x)
        if self._buffers.glimpse is not None:
            self._buffers.glimpse.take()
        self.found.append((self._buffers.arrangement, float(x[0, 0])))
        return Answer(status=0, elapsed_ns=1000)


@pytest.fixture
def side() -> StandInSide:
    return StandInSide(StandInBench())


def timed_in(side: StandInSide) -> tuple[list[int], list[list[tuple[int, float]]]]:
    """Time pairs as timers do; return the number of each timed call among all, and what came between two of them."""
    calls = Calls(cast("Bench", side.bench), cast("CandidateSide", side), is_timed=True)
    numbers: list[int] = []
    between: list[list[tuple[int, float]]] = []
    for pair in range(PAIRS):
        data = DataSet(family=GIVEN, seed=pair, inputs=(torch.full((4, 8), float(pair)),), state=())
        calls.on(data)
        numbers.append(len(side.found))
        for number, _ in enumerate(calls.elsewhere(data), 1):
            assert len(side.found) == numbers[-1] + number, "each call is to be compared before the next one is made"
        between.append(side.found[numbers[-1] :])
    return numbers, between


def test_who_counts_calls_finds_the_timed_ones_in_the_same_rhythm_whatever_comes_between(side: StandInSide) -> None:
    numbers, _ = timed_in(side)
    assert numbers[-1] > PAIRS, "nothing came between"
    assert [number % 2 for number in numbers] == [number % 2 for number in range(1, PAIRS + 1)]


def test_calls_between_come_by_chance_on_the_same_data_with_places_crossed(side: StandInSide) -> None:
    _, between = timed_in(side)
    made = [pair for pair, found in enumerate(between) if found]
    gaps = {later - earlier for earlier, later in zip([-1, *made], made, strict=False)}
    assert len(gaps) > 1
    assert gaps <= set(range(1, 11))
    assert {len(between[pair]) for pair in made} == {2}
    assert all(value == pair for pair in made for _, value in between[pair])
    assert all(arrangement >= PLACES for pair in made for arrangement, _ in between[pair])
