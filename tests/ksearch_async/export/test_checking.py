"""The self-test of exported modules finds wrong what the judge finds wrong, and right what it finds right."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.check.compare import Allowed
from evaluators.judge.check.tolerances import bounds_of
from ksearch_async.export.parts.checking import compare
from messages.tasks import Tolerance

PROFILES = ["strict", "kernelbench", "flashinfer", "gpumode:2e-2,1e-3"]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (5,), (7, 3), (4, 40), (2, 3, 64)])
def test_counts_and_ratios_are_the_judges(profile: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(len(profile) + dtype.itemsize + len(shape))
    expected = torch.randn(shape, dtype=torch.float64) * 10.0
    native = (expected * (1 + 1e-7)).to(dtype)
    tolerance = Tolerance(profile=profile)
    allowed = Allowed(expected, native, tolerance)
    bounds = bounds_of(tolerance, str(dtype).removeprefix("torch."))
    for error in (0.0, 1e-9, 1e-5, 1e-3, 1e-1):
        out = (native.double() + error * torch.randn(shape, dtype=torch.float64)).to(dtype)
        theirs = allowed.errors(out, expected)
        wrong, largest, ratio = compare(out, expected, native, (bounds.rtol, bounds.atol, bounds.is_either))
        assert wrong == int(theirs.wrong.sum())
        assert largest == pytest.approx(theirs.largest)
        assert ratio == pytest.approx(theirs.ratio)


@pytest.mark.parametrize("out", [[1.0, float("inf")], [float("nan"), 2.0], [float("inf"), float("nan")]])
def test_infinities_and_nans_must_be_where_the_reference_has_them(out: list[float]) -> None:
    expected = torch.tensor([float("inf"), float("nan")], dtype=torch.float64)
    wrong, _, _ = compare(torch.tensor(out), expected, expected.float(), (1e-4, None, False))
    theirs = Allowed(expected, expected.float(), Tolerance()).errors(torch.tensor(out), expected)
    assert wrong == int(theirs.wrong.sum())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_and_booleans_are_exact(dtype: torch.dtype) -> None:
    expected = torch.tensor([0, 1, 1, 0]).to(dtype)
    out = torch.tensor([0, 1, 0, 0]).to(dtype)
    assert compare(expected.clone(), expected, expected, (0.0, 0.0, False))[0] == 0
    assert compare(out, expected, expected, (0.0, 0.0, False))[0] == 1
