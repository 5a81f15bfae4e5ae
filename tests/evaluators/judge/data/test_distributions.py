"""Families of data: what they change, and what they must not."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.data import distributions
from evaluators.judge.data.distributions import ADVERSARIAL, Distribution

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SHAPES = [(64, 128), (5,), (1, 3, 7), ()]


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def drawn(shape: tuple[int, ...] = (64, 128), dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=generator()).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("change", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_every_family_keeps_shape_dtype_and_range(
    change: Distribution, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    before = drawn(shape, dtype)
    kept = before.clone()
    after = change(before, generator())
    assert (after.shape, after.dtype, after.is_contiguous()) == (before.shape, dtype, True)
    assert bool(after.isfinite().all())
    assert torch.equal(before, kept), "what was given was changed"


@pytest.mark.parametrize("change", ADVERSARIAL.values(), ids=ADVERSARIAL.keys())
def test_a_seed_says_the_data(change: Distribution) -> None:
    assert torch.equal(change(drawn(), generator()), change(drawn(), generator()))


def test_spikes_are_few_huge_and_hidden() -> None:
    before = drawn((256, 128))
    after = distributions.spikes(before, generator())
    moved = after != before
    assert 1 <= int(moved.sum()) <= 8
    assert after.max() > 900
    assert bool((after[moved].abs() > 8).all())


def test_data_that_nearly_equals_another_differs_in_one_or_two_places_with_usual_values() -> None:
    before = drawn((256, 128))
    after = distributions.nearly_equal(before, generator())
    assert 1 <= int((after != before).sum()) <= 2
    assert after.abs().max() < 6


def test_scaling_up_stays_in_the_range_of_half_precision() -> None:
    large = drawn(dtype=torch.float16) * 100
    after = distributions.scaled_up(large, generator())
    assert bool(after.isfinite().all())
    assert float(after.abs().max()) > 2000


def test_sorted_data_has_ties_and_sparse_data_has_rows_of_zeros() -> None:
    rows = distributions.sorted_with_ties(drawn(), generator())
    assert bool((rows.diff(dim=-1) >= 0).all())
    assert len(set(rows.flatten().tolist())) < 64
    sparse = distributions.sparse(drawn(), generator())
    assert 0.85 < float((sparse == 0).float().mean()) < 0.95
    assert bool((sparse == 0).all(dim=-1).any())


def test_masks_are_known_from_activations() -> None:
    mask = distributions.zeros_and_ones(drawn(), generator())
    assert distributions.is_binary(mask)
    assert distributions.is_whole(mask)
    assert not distributions.is_whole(drawn())
    assert not distributions.is_binary(mask * 2)
