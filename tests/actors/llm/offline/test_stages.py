from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.llm.offline.stages import Index, NoRuleError, combined, part, row_major, substituted, whole


def at(index: Index, place: tuple[int, ...]) -> int:
    return index.offset + sum(place[t.dim] // t.div % t.mod * t.scale for t in index.terms)


def factors(count: int) -> list[tuple[int, ...]]:
    """All shapes of three dimensions with this many elements."""
    return [(a, b, count // a // b) for a in range(1, count + 1) for b in range(1, count + 1) if count % (a * b) == 0]


@given(st.sampled_from(factors(24)), st.sampled_from(factors(24)), st.permutations((0, 1, 2)))
def test_a_permuted_and_reshaped_tensor_is_read_where_its_elements_lie(
    first: tuple[int, ...], second: tuple[int, ...], order: list[int]
) -> None:
    permuted = tuple(first[dim] for dim in order)
    flat = combined([whole(dim, size) for dim, size in enumerate(second)], row_major(second))
    try:
        split = [part(flat, stride, size) for stride, size in zip(row_major(permuted), permuted, strict=True)]
    except NoRuleError:
        return  # cut at places that do not divide each other
    strides = [row_major(first)[dim] for dim in order]
    memory = substituted(combined([whole(dim, size) for dim, size in enumerate(permuted)], strides), split)
    for number, place in enumerate(itertools.product(*map(range, second))):
        digits = [number // stride % size for stride, size in zip(row_major(permuted), permuted, strict=True)]
        assert at(memory, place) == sum(digit * stride for digit, stride in zip(digits, strides, strict=True))


def test_splitting_and_merging_again_is_no_view_at_all() -> None:
    flat = combined([whole(0, 4), whole(1, 6)], (6, 1))
    assert [part(flat, 6, 4), part(flat, 1, 6)] == [whole(0, 4), whole(1, 6)]
    merged = combined([part(whole(0, 24), 6, 4), part(whole(0, 24), 1, 6)], (6, 1))
    assert merged == whole(0, 24)


def test_repeating_each_position_divides_the_index() -> None:
    repeated = combined([part(whole(0, 12), 3, 4)], (10,))
    assert [at(repeated, (place,)) for place in range(12)] == [place // 3 * 10 for place in range(12)]


def test_a_slice_that_is_split_afterwards_has_no_rule() -> None:
    with pytest.raises(NoRuleError, match="slice"):
        part(Index(2, whole(0, 12).terms), 3, 4)
