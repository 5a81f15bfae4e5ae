"""Tolerance profiles: what each allows, and names that are none."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evaluators.judge.check.tolerances import bounds_of, check_profile, say_tolerance
from messages.base import ConfigError
from messages.tasks import TaskSpec, Tolerance


def test_strict_has_no_fixed_absolute_part() -> None:
    assert bounds_of(Tolerance(), "float32").atol is None
    assert bounds_of(Tolerance(), "bfloat16").rtol > bounds_of(Tolerance(), "float16").rtol


def test_profiles_say_what_their_harness_says() -> None:
    kernelbench = bounds_of(Tolerance(profile="kernelbench"), "float32")
    assert (kernelbench.rtol, kernelbench.atol, kernelbench.is_either) == (1e-4, 1e-4, False)
    assert bounds_of(Tolerance(profile="kernelbench"), "float16").atol == 1e-2
    flashinfer = bounds_of(Tolerance(profile="flashinfer"), "float32")
    assert (flashinfer.rtol, flashinfer.atol, flashinfer.is_either) == (1e-2, 1e-2, True)
    gpumode = bounds_of(Tolerance(profile="gpumode:2e-2,3e-2"), "float32")
    assert (gpumode.rtol, gpumode.atol, gpumode.is_either) == (2e-2, 3e-2, False)


def test_a_tasks_own_numbers_count_before_its_profiles() -> None:
    bounds = bounds_of(Tolerance(profile="kernelbench", atol=0.5), "float32")
    assert (bounds.rtol, bounds.atol) == (1e-4, 0.5)
    assert say_tolerance(Tolerance(profile="kernelbench", atol=0.5)) == "kernelbench, atol 0.5"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Strict",
        "kernelbench2",
        "gpumode",
        "gpumode:",
        "gpumode:1",
        "gpumode:1,x",
        "gpumode:-1,1",
        "gpumode:nan,1",
        "gpumode:1,1,cube",
    ],
)
def test_what_is_no_profile_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="tolerance profile"):
        check_profile(name)


def test_a_task_under_another_profile_is_another_task() -> None:
    strict = TaskSpec(name="t", source="kernelbench", text="x")
    loose = replace(strict, tolerance=Tolerance(profile="flashinfer"))
    assert strict.task_id != loose.task_id


def test_a_growing_tolerance_grows_with_the_root_of_the_number_of_elements() -> None:
    bounds = bounds_of(Tolerance(profile="gpumode:1e-5,2e-5,sqrt"), "float32")
    assert bounds.for_elements(1) == bounds_of(Tolerance(profile="gpumode:1e-5,2e-5"), "float32")
    larger = bounds.for_elements(10_000)
    assert (larger.rtol, larger.atol) == pytest.approx((1e-3, 2e-3))


def test_a_flashinfer_profile_may_say_which_part_of_the_elements_must_be_right() -> None:
    assert bounds_of(Tolerance(profile="flashinfer:0.95"), "bfloat16").matched == 0.95
    assert bounds_of(Tolerance(profile="flashinfer"), "bfloat16").matched == 1.0
    for name in ("flashinfer:most", "flashinfer:0.1", "flashinfer:1.5"):
        with pytest.raises(ConfigError, match="ratio"):
            check_profile(name)
