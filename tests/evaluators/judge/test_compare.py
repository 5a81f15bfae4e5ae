"""The comparison: what is let through, and what is said of the rest."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.arena import is_poison, poison
from evaluators.judge.compare import Allowed, describe_wrong
from messages.tasks import Tolerance


def reference(rows: int = 64, columns: int = 256) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def verdict(out: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None = None) -> int:
    """Return how many elements are wrong."""
    native = expected.to(out.dtype)
    wrong, _, _ = Allowed(expected, native, tolerance or Tolerance()).errors(out, expected)
    return int(wrong.sum())


def test_rounding_to_the_tasks_dtype_is_right() -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert verdict(reference().to(dtype), reference()) == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_inside_a_float32_task_is_wrong(dtype: torch.dtype) -> None:
    assert verdict(reference().to(dtype).float(), reference()) > 1000


def test_zeros_are_wrong_however_small_the_expected_values_are() -> None:
    expected = reference() * 1e-9
    assert verdict(torch.zeros(64, 256), expected) > 16000


def test_a_small_row_is_held_to_its_own_scale() -> None:
    expected = reference()
    expected[5] *= 1e-2
    out = expected.float()
    out[5] += 1e-4
    assert verdict(out, expected) > 200


def test_nan_and_infinity_must_be_where_the_reference_has_them() -> None:
    expected = reference()
    expected[0, 0], expected[1, 1] = float("nan"), float("inf")
    right = expected.float()
    assert verdict(right, expected) == 0
    for place, value in (((0, 0), 1.0), ((1, 1), float("-inf")), ((2, 2), float("nan")), ((3, 3), float("inf"))):
        out = right.clone()
        out[place] = value
        assert verdict(out, expected) == 1


def test_integers_and_booleans_are_exact() -> None:
    expected = torch.arange(64).view(2, 32)
    assert verdict(expected.clone(), expected) == 0
    assert verdict(expected + torch.eye(2, 32).long(), expected) == 2
    flags = expected % 2 == 0
    assert verdict(flags.clone(), flags) == 0
    assert verdict(~flags, flags) == 64


def test_a_task_may_say_its_own_tolerance() -> None:
    out = reference().float() + 1e-3
    assert verdict(out, reference()) > 0
    assert verdict(out, reference(), Tolerance(atol=1e-2)) == 0


def test_scalars_have_a_tolerance_too() -> None:
    expected = torch.tensor(3.0, dtype=torch.float64)
    assert verdict(torch.tensor(3.0), expected) == 0
    assert verdict(torch.tensor(3.1), expected) == 1


def test_a_timed_output_is_compared_with_the_eager_one() -> None:
    expected = reference()
    allowed = Allowed(expected, expected.float(), Tolerance())
    eager = expected.float()
    assert allowed.accepts_beside(eager * (1 + 1e-5), eager)
    assert not allowed.accepts_beside(eager * 1.01, eager)
    unwritten = eager.clone()
    poison(unwritten[3])
    assert not allowed.accepts_beside(unwritten, eager)


def test_infinite_places_of_a_timed_output_must_agree() -> None:
    expected = reference()
    allowed = Allowed(expected, expected.float(), Tolerance())
    eager = expected.float()
    eager[0, 0] = float("inf")
    assert allowed.accepts_beside(eager.clone(), eager)
    assert not allowed.accepts_beside(expected.float(), eager)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool]
)
def test_the_pattern_of_every_dtype_is_recognised(dtype: torch.dtype) -> None:
    tensor = torch.zeros(8, dtype=dtype)
    assert not bool(is_poison(tensor).any())
    poison(tensor)
    assert bool(is_poison(tensor).all())


def test_a_transposed_result_is_told() -> None:
    expected = reference(64, 64)
    out = expected.T.contiguous().float()
    assert "transposed" in describe_wrong(out, expected, (out - expected).abs() > 1e-3)


def test_wrong_rows_are_told() -> None:
    expected = reference()
    out = expected.float()
    out[60:] = 0.5
    mask = torch.zeros(64, 256, dtype=torch.bool)
    mask[60:] = True
    assert "whole rows: 4 of 64 rows are wrong, 60 to 63" in describe_wrong(out, expected, mask)
