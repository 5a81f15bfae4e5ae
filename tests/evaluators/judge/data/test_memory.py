"""Inputs and outputs lie at several places, and an arrangement says at which of them in a call."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from evaluators.judge.data.arena import PLACES, Area, crossings, is_poison
from evaluators.judge.data.memory import Buffers, Moves, make_buffers, places_for
from messages.tasks import TensorSpec

TENSORS = [
    TensorSpec(name="x", role="input", shape=(4, 8), dtype="float32"),
    TensorSpec(name="mask", role="input", shape=(8,), dtype="bool"),
    TensorSpec(name="weight", role="parameter", shape=(8,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4, 8), dtype="float32"),
]
COUNT = PLACES + len(crossings(PLACES))


@pytest.fixture
def buffers() -> Buffers:
    return make_buffers([TENSORS])[0]


def lay(buffers: Buffers, value: float, at: int) -> None:
    inputs = (torch.full((4, 8), value), torch.ones(8, dtype=torch.bool))
    buffers.lay(inputs, (torch.full((8,), 7.0),), at=at)


def offsets(buffers: Buffers, number: int) -> list[int]:
    placed = [*buffers.inputs.placed, *buffers.outputs.placed]
    return [place.offsets[number % len(place.offsets)] for place in placed]


def test_inputs_and_outputs_have_three_places_of_their_own_and_parameters_one(buffers: Buffers) -> None:
    x, mask, weight, output = (*buffers.inputs.placed, *buffers.outputs.placed)
    assert [len(set(one.offsets)) for one in (x, mask, weight, output)] == [3, 3, 1, 3]
    assert [len(one.offsets) for one in (x, mask, weight, output)] == [COUNT, COUNT, 1, COUNT]
    addresses = {tensor.data_ptr() for tensor in (*buffers.inputs.moving, *buffers.outputs.moving)}
    assert len(addresses) == 9


def test_what_lay_elsewhere_before_is_there_no_longer_and_what_lies_there_is_the_new_data(buffers: Buffers) -> None:
    lay(buffers, 1.0, at=0)
    stale, stale_mask, weight = buffers.inputs.tensors
    lay(buffers, 2.0, at=1)
    x, mask, _ = buffers.inputs.tensors
    assert bool((x == 2).all())
    assert bool(mask.all())
    assert stale.data_ptr() != x.data_ptr()
    assert bool(is_poison(stale).all())
    assert not stale_mask.any()  # the same in both calls: who kept the address reads something else
    assert bool((weight == 7).all())


def test_data_that_lies_at_its_place_already_is_not_copied_again(buffers: Buffers) -> None:
    inputs, state = (torch.ones(4, 8), torch.ones(8, dtype=torch.bool)), (torch.ones(8),)
    buffers.lay(inputs, state, at=0)
    buffers.inputs.tensors[0][0, 0] = 5
    buffers.lay(inputs, state, at=0)
    assert buffers.inputs.tensors[0][0, 0] == 5
    buffers.lay(inputs, state, at=1)
    buffers.lay(inputs, state, at=0)
    assert buffers.inputs.tensors[0][0, 0] == 1


def test_only_the_output_at_its_place_counts(buffers: Buffers) -> None:
    lay(buffers, 1.0, at=0)
    (before,) = buffers.outputs.tensors
    lay(buffers, 1.0, at=2)
    buffers.outputs.poison()
    before.fill_(3.0)
    assert bool(is_poison(buffers.results[0]).all())
    assert not buffers.outputs.broken_guards()


@pytest.mark.parametrize("places", [2, 3])
def test_a_call_with_crossed_places_tells_apart_what_is_kept_by_any_one_address(places: int) -> None:
    inputs, outputs = ([spec for spec in TENSORS if (spec.role == "output") is wanted] for wanted in (False, True))
    areas = [
        Area(name, specs, guarded=False, places=places) for name, specs in (("inputs", inputs), ("outputs", outputs))
    ]
    placed = [place for area in areas for place in area.placed if len(place.offsets) > 1]
    for number, pair in enumerate(crossings(places)):
        at = [place.offsets.index(place.offsets[places + number]) for place in placed]
        assert set(at) == set(pair)


def test_the_first_two_checked_calls_share_no_place_and_the_third_crosses_them(buffers: Buffers) -> None:
    for _ in range(20):
        moves = Moves(PLACES, is_timed=False)
        first, second, third, *later = (moves.next() for _ in range(200))
        moving = [0, 1, 3]
        assert all(offsets(buffers, first)[index] != offsets(buffers, second)[index] for index in moving)
        crossed = offsets(buffers, third)
        assert crossed != offsets(buffers, first)
        assert crossed != offsets(buffers, second)
        for index in moving:
            assert crossed[index] in {offsets(buffers, first)[index], offsets(buffers, second)[index]}
        assert set(later) == set(range(COUNT))


def test_timed_calls_visit_all_places_first_and_keep_to_one_set_of_addresses_per_place() -> None:
    moves = Moves(PLACES, is_timed=True)
    drawn = [moves.next() for _ in range(200)]
    assert set(drawn[:PLACES]) == set(range(PLACES)) == set(drawn)
    assert {moves.crossed() for _ in range(200)} == set(range(PLACES, COUNT))


@pytest.mark.parametrize(("most_bytes", "places"), [(3 * 264, 3), (3 * 264 - 1, 2), (0, 2)])
def test_of_large_tensors_there_are_two_places(most_bytes: int, places: int) -> None:
    layouts: Sequence[Sequence[TensorSpec]] = [TENSORS, TENSORS[:1]]
    assert places_for(layouts, most_bytes) == places
