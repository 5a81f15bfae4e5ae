"""The bank of wrong kernels fails, the honest ones pass, under every tolerance profile."""

from __future__ import annotations

import pytest

from tests.evaluators.judge.kernels import HONEST, LOOSE_LETS_THROUGH, WRONG, fails_on, with_profile

TIGHT = ("strict", "kernelbench")
LOOSE = ("flashinfer", "gpumode:2e-2,2e-2")


@pytest.mark.parametrize("profile", [*TIGHT, *LOOSE])
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_kernel_that_rounds_otherwise_passes_on_all_families(name: str, profile: str) -> None:
    task, kernel = HONEST[name]
    assert fails_on(with_profile(task, profile), kernel) == ""


@pytest.mark.parametrize("profile", TIGHT)
@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_kernel_fails_where_full_precision_is_asked_for(name: str, profile: str) -> None:
    task, kernel = WRONG[name]
    assert fails_on(with_profile(task, profile), kernel()) != ""


@pytest.mark.parametrize("profile", LOOSE)
@pytest.mark.parametrize("name", sorted(WRONG.keys() - LOOSE_LETS_THROUGH))
def test_a_loose_profile_lets_through_lower_precision_only(name: str, profile: str) -> None:
    task, kernel = WRONG[name]
    assert fails_on(with_profile(task, profile), kernel()) != ""


@pytest.mark.parametrize("name", ["no maximum", "only small inputs", "no epsilon", "parameters kept", "result kept"])
def test_what_holds_for_the_given_inputs_only_passes_on_those(name: str) -> None:
    task, kernel = WRONG[name]
    assert fails_on(task, kernel(), families=("given",)) == ""
