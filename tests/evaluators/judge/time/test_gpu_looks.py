"""Whether a GPU works for a candidate that is stopped: what follows from what holds say, which are made up here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, repeat

import pytest
import torch

from evaluators.judge.time.gpu_cover import Looks, is_alone, stir

GAP_NS = 800_000


def looked(gaps_ns: Iterator[int], times: int = 60, *, is_alone: bool = True) -> Looks:
    looks = Looks(lambda _stir: next(gaps_ns), is_alone=is_alone)
    for _ in range(times):
        looks.look(lambda: None)
    return looks


def test_who_has_the_gpu_between_all_of_its_calls_is_told_so() -> None:
    looks = looked(repeat(GAP_NS))
    assert "for up to 800 us" in looks.complaint()
    assert "what it launches goes on behind its calls" in looks.complaint()


def test_who_never_has_it_is_told_how_often_that_was_looked_at() -> None:
    looks = looked(repeat(900), 400)
    assert looks.complaint() == ""
    count = int(looks.note().split()[1])
    assert 40 < count < 160


def test_once_something_was_seen_it_is_looked_each_time() -> None:
    gaps_ns = chain([GAP_NS], repeat(900))
    looks = Looks(lambda _stir: next(gaps_ns))
    while "looked 1 times" not in looks.note():
        looks.look(lambda: None)
    for _ in range(30):
        looks.look(lambda: None)
    assert "looked 31 times" in looks.note()


@pytest.mark.parametrize(("seen", "of", "complains"), [(1, 1, False), (2, 4, True), (2, 9, True), (2, 11, False)])
def test_what_is_seen_once_or_seldom_is_nothing_to_complain_of(seen: int, of: int, complains: bool) -> None:
    gaps_ns = chain(repeat(GAP_NS, seen), repeat(900))
    looks = Looks(lambda _stir: next(gaps_ns))
    while f"looked {of} times" not in looks.note():
        looks.look(lambda: None)
    assert bool(looks.complaint()) is complains


def test_on_a_gpu_that_others_use_nothing_follows_and_that_is_said() -> None:
    looks = looked(repeat(GAP_NS), is_alone=False)
    assert looks.complaint() == ""
    assert "somebody else uses the GPU" in looks.note()


@pytest.mark.parametrize(("seen", "expected"), [(0, True), (1, True), (2, False), (8, False)])
def test_a_gpu_is_alone_if_no_two_looks_see_anybody(seen: int, expected: bool) -> None:
    found = iter([GAP_NS] * seen + [900] * (8 - seen))
    assert is_alone(lambda _stir: next(found), 8) is expected


def test_inputs_are_stirred_in_each_look_and_only_then() -> None:
    order: list[str] = []

    def gap_ns(stir: Callable[[], None]) -> int:
        order.append("hold")
        stir()
        return 900

    looks = Looks(gap_ns)
    for _ in range(50):
        looks.look(lambda: order.append("stir"))
    assert order == ["hold", "stir"] * (len(order) // 2)
    assert order


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.float8_e4m3fn])
@pytest.mark.parametrize("shape", [(37,), (8, 16)])
def test_stirring_leaves_the_same_values_in_other_places(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    before = torch.arange(torch.Size(shape).numel()).to(torch.float32).to(dtype).view(shape)
    tensor = before.clone()
    stir([tensor])
    as_numbers = tensor.to(torch.float64).view(-1)
    expected = before.to(torch.float64).view(-1)
    assert sorted(as_numbers.tolist()) == sorted(expected.tolist())
    assert any(torch.equal(as_numbers, expected.roll(shift)) for shift in range(1, expected.numel()))
    assert not torch.equal(as_numbers, expected)


@pytest.mark.parametrize("shape", [(), (1,), (0,)])
def test_what_has_no_other_place_stays(shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape)
    stir([tensor])
    assert torch.equal(tensor, torch.ones(shape))


def test_of_large_tensors_some_part_is_stirred() -> None:
    count = 3 * (16 << 20) // 8
    tensor = torch.arange(count)
    stir([tensor])
    moved = (tensor != torch.arange(count)).nonzero().view(-1)
    assert int(moved[-1] - moved[0]) < (16 << 20) // 8
    assert len(moved) == (16 << 20) // 8
    assert torch.equal(tensor.sort().values, torch.arange(count))


def test_of_many_tensors_some_are_stirred() -> None:
    tensors = [torch.arange(100) for _ in range(30)]
    stir(tensors)
    assert sum(not torch.equal(tensor, torch.arange(100)) for tensor in tensors) == 8
