"""Outputs in floats of eight bits are compared by the steps of their format; what is let through is scattered."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.check.compare import Allowed
from evaluators.judge.check.low_bits import steps_apart
from evaluators.judge.data.arena import is_poison, poison
from messages.tasks import Tolerance

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("dtype", "one", "other", "steps"),
    [
        (E4M3, 1.0, 1.0, 0),
        (E4M3, 1.0, 1.125, 1),
        (E4M3, 1.0, 1.25, 2),
        (E4M3, 0.0, -0.0, 0),
        (E4M3, 2.0**-9, -(2.0**-9), 2),
        (E4M3, 448.0, NAN, 255),
        (E4M3, NAN, NAN, 0),
        (E5M2, 1.0, 1.25, 1),
        (E5M2, 57344.0, INFINITY, 255),
        (E5M2, INFINITY, INFINITY, 0),
        (E5M2, INFINITY, -INFINITY, 255),
    ],
)
def test_values_lie_as_many_steps_apart_as_the_format_has_between_them(
    dtype: torch.dtype, one: float, other: float, steps: int
) -> None:
    left, right = torch.tensor([one]).to(dtype), torch.tensor([other]).to(dtype)
    assert steps_apart(left, right).tolist() == [steps]


def quantised(values: torch.Tensor, *, off: float = 0.0, steps: int = 1) -> torch.Tensor:
    """Return values in eight bits, of which a share is some steps up in magnitude."""
    found = values.to(E4M3)
    bits = found.view(torch.uint8).clone()
    bits[: int(off * len(bits))] += steps
    return bits.view(E4M3)


@pytest.mark.parametrize(
    ("out", "is_right"),
    [
        ({}, True),
        ({"off": 0.04}, True),
        ({"off": 0.07}, False),
        ({"off": 0.01, "steps": 2}, False),
    ],
)
def test_few_elements_may_be_rounded_to_the_other_side_and_none_further(out: dict[str, float], is_right: bool) -> None:
    values = torch.rand(1000) + 0.5
    native = quantised(values)
    allowed = Allowed(native, native, Tolerance())
    given = quantised(values, off=out.get("off", 0.0), steps=int(out.get("steps", 1)))
    errors = allowed.errors(given, native)
    assert bool(errors.wrong.any()) != is_right
    assert (errors.ratio <= 1.0) == is_right


def test_a_timed_call_may_lie_on_the_other_side_of_the_reference_twice_as_often() -> None:
    values = torch.rand(1000) + 0.5
    native = quantised(values)
    allowed = Allowed(native, native, Tolerance())
    assert allowed.accepts_beside(quantised(values, off=0.09), native)
    assert not allowed.accepts_beside(quantised(values, off=0.11), native)


def test_cutting_off_instead_of_rounding_is_wrong() -> None:
    values = torch.rand(1000) + 0.5
    native = values.to(E4M3)
    is_up = native.float() > values
    bits = native.view(torch.uint8) - is_up.to(torch.uint8)
    assert bool(Allowed(native, native, Tolerance()).errors(bits.view(E4M3), native).wrong.any())


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_what_was_never_written_is_told_by_its_pattern(dtype: torch.dtype) -> None:
    out = torch.zeros(4).to(dtype)
    poison(out)
    assert bool(is_poison(out).all())
    assert bool(out.float().isnan().all())


def matched(out: torch.Tensor, expected: torch.Tensor) -> bool:
    """Say whether an output passes where 95 % of its elements must match."""
    allowed = Allowed(expected, expected.float(), Tolerance(profile="flashinfer:0.95"))
    return not bool(allowed.errors(out, expected).wrong.any())


def test_a_matched_ratio_lets_scattered_small_errors_through_and_nothing_that_is_left_out() -> None:
    torch.manual_seed(0)
    expected = torch.randn(64, 128, dtype=torch.float64)
    scattered = torch.rand(64, 128) < 0.04
    rounded = torch.where(scattered, expected * 1.03 + 0.02, expected).float()
    assert matched(rounded, expected)
    without_rows, without_columns = expected.float(), expected.float()
    without_rows[:2] *= 0.95
    without_columns[:, 100:104] *= 0.95
    without_some = torch.where(scattered, 0.0, expected).float()
    assert not matched(without_rows, expected)
    assert not matched(without_columns, expected)
    assert not matched(without_some, expected)
