"""The comparison: what is let through, and what is said of the rest."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.check.compare import Allowed, describe_wrong
from evaluators.judge.data.arena import is_poison, poison
from messages.tasks import Tolerance


def reference(rows: int = 64, columns: int = 256) -> torch.Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def verdict(out: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None = None) -> int:
    """Return how many elements are wrong."""
    native = expected.to(out.dtype)
    wrong = Allowed(expected, native, tolerance or Tolerance()).errors(out, expected).wrong
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


def test_a_timed_output_is_held_to_the_scale_of_its_own_data() -> None:
    expected = reference()
    allowed = Allowed(expected, expected.float(), Tolerance())
    small = (reference() * 1e-3).float()
    assert allowed.accepts_beside(small.clone(), small)
    assert not allowed.accepts_beside(small + 1e-5, small)
    assert allowed.accepts_beside((small * 1e6) * (1 + 1e-6), small * 1e6)


def test_a_wrong_timed_output_is_described_by_the_same_rule() -> None:
    expected = reference()
    allowed = Allowed(expected, expected.float(), Tolerance())
    eager = expected.float()
    out = eager.clone()
    out[2, 3] += 1.0
    errors = allowed.errors_beside(out, eager)
    assert int(errors.wrong.sum()) == 1
    assert bool(errors.wrong[2, 3])
    assert errors.largest == pytest.approx(1.0)


def test_an_index_that_rounding_decides_may_be_either() -> None:
    expected, native = torch.tensor([3, 5]), torch.tensor([3, 6])
    allowed = Allowed(expected, native, Tolerance())
    assert not bool(allowed.errors(native.clone(), expected).wrong.any())
    assert not bool(allowed.errors(expected.clone(), expected).wrong.any())
    assert int(allowed.errors(torch.tensor([4, 7]), expected).wrong.sum()) == 2


def test_numbers_too_small_for_the_dtype_may_be_flushed_to_zero() -> None:
    expected = reference() * 1e-41
    assert verdict(torch.zeros(64, 256), expected) == 0


def test_a_boolean_of_another_byte_than_0_and_1_is_wrong() -> None:
    expected = torch.ones(4, dtype=torch.bool)
    out = torch.tensor([1, 1, 2, 1], dtype=torch.uint8).view(torch.bool)
    assert verdict(out, expected) == 1


def test_the_flashinfer_profile_takes_what_keeps_either_part() -> None:
    loose = Tolerance(profile="flashinfer")
    expected = torch.full((4, 64), 100.0, dtype=torch.float64)
    expected[1] = 1e-3
    assert verdict((expected * 1.009).float(), expected, loose) == 0
    assert verdict((expected + 0.009).float(), expected, loose) == 0
    assert verdict((expected * 1.009 + 0.2).float(), expected, loose) == 256
    assert verdict((expected * 1.011).float(), expected, loose) == 192


def test_a_matched_ratio_forgives_so_many_wrong_elements_and_none_that_is_not_finite() -> None:
    expected = torch.linspace(1.0, 2.0, 200).reshape(10, 20)
    allowed = Allowed(expected.double(), expected, Tolerance(profile="flashinfer:0.95"))
    few, many, infinite = expected.clone(), expected.clone(), expected.clone()
    few.view(-1)[::21] += 0.05
    many.view(-1)[::19] += 0.05
    infinite[0, 0] = float("inf")
    assert not bool(allowed.errors(few, expected.double()).wrong.any())
    assert allowed.accepts_beside(few, expected)
    assert int(allowed.errors(many, expected.double()).wrong.sum()) == 11
    assert not allowed.accepts_beside(infinite, expected)


def test_the_kernelbench_profile_is_that_of_allclose() -> None:
    profile = Tolerance(profile="kernelbench")
    expected = reference()
    for change in (9e-5, 1.1e-4, 3e-4):
        out = (expected + change).float()
        far = ~torch.isclose(out.double(), expected, rtol=1e-4, atol=1e-4)
        assert verdict(out, expected, profile) == int(far.sum())


def test_an_error_is_told_in_multiples_of_what_the_dtype_loses() -> None:
    expected = reference()
    allowed = Allowed(expected, expected.float(), Tolerance(profile="flashinfer"))
    assert allowed.errors(expected.float(), expected).own_ratio <= 1
    assert allowed.errors(expected.half().float(), expected).own_ratio > 1000


def test_one_long_row_is_compared_in_parts_and_as_a_whole() -> None:
    expected = torch.randn(1, 5_000_000, dtype=torch.float64)
    out = expected.float()
    out[0, -1] += 1.0
    allowed = Allowed(expected, expected.float(), Tolerance())
    wrong = allowed.errors(out, expected).wrong
    assert (int(wrong.sum()), bool(wrong[0, -1])) == (1, True)
    assert not allowed.accepts_beside(out, expected.float())


def test_a_fixed_tolerance_is_no_smaller_than_one_rounding_of_the_dtype() -> None:
    """Else only the reference's own bits would pass; what computes in a lower precision does not."""
    tight = Tolerance(profile="gpumode:1e-5,1e-8")
    assert verdict(reference().half(), reference(), tight) == 0
    assert verdict(reference().bfloat16().half(), reference(), tight) > 1000
    assert verdict((reference() * (1 + 3e-5)).float(), reference(), tight) > 16000


def test_a_growing_tolerance_is_of_the_whole_output() -> None:
    tight, growing = Tolerance(profile="gpumode:1e-6,1e-8"), Tolerance(profile="gpumode:1e-6,1e-8,sqrt")
    out = (reference() * (1 + 1e-4)).float()
    assert verdict(out, reference(), tight) > 16000
    assert verdict(out, reference(), growing) == 0
