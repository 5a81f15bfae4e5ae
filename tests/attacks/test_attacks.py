"""The collection through the real builder and the real evaluator: each candidate's verdict, and what it leaves."""

from __future__ import annotations

import functools
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TypeGuard

import anyio
import pytest
from _pytest.mark import ParameterSet

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.local import LocalEvaluator
from messages.base import EvaluatorError, Language
from messages.events import Built
from messages.tasks import Target
from messages.verdicts import TimedOut, Unstable, Verdict
from tests.attacks.cases import Case, Places, came_true, load_cases
from tests.attacks.places import leftovers
from tests.evaluators.words import build_job, evaluate_job

pytestmark = pytest.mark.anyio

PATIENCE_S = 90.0
TRIES = 3
STARVED = "was starved"
GRACE_S = 2.0
"""What the verdict on one that hangs may take beyond its limit."""
KINDS = ("cheats", "faulty", "honest")
CASES = sorted(
    (case for kind in KINDS for case in load_cases(kind)), key=lambda case: (case.language, case.task.name, case.kind)
)

VARIANTS = {
    "cpp": "a2_kernel_copies_after_the_answer b13_benchmark_lines c3_results_in_tmp cache_by_shape "
    "d10_variance_in_one_pass deadlocks denormals_flushed descriptors_leaked eats_memory_by_files "
    "exceptions_inside f3_descriptors_closed fast_math_by_pragma floods_its_output hangs_in_a_call "
    "huge_pages_advised huge_templates indices_never_varied infinite_outputs large_stack "
    "normalisation_of_eval_mode output_as_scratch plan_by_addresses reads_proc spins_when_loaded "
    "static_initialisers stops_itself sums_in_any_order thread_per_call tries_variants_first "
    "variance_by_welford vectorised_by_hand",
    "python": "a2_thread_fills_later d10_maximum_from_zero inputs_copied normalisation_folded numpy_for_constants "
    "outputs_in_turn_3 outputs_in_turn_5 statistics_left_alone transposed_output",
    "triton": "d10_mask_never_read d10_temperature_never_read floods_its_output hangs_when_imported",
}
"""Per language, cases of the long run: another one of the usual run has their mechanism, or the same one elsewhere."""


@functools.cache
def target_for(language: Language) -> Target:
    return probe_target(language)


async def judge(case: Case, places: Places, builder: LocalBuilder, evaluator: LocalEvaluator) -> Verdict:
    candidate, target = case.candidate(places), target_for(case.language)
    built = (await builder.build(build_job(candidate, target))).outcome
    if not isinstance(built, Built):
        return built
    report = await evaluator.evaluate(evaluate_job(candidate, built.artifact_id, target, case.task))
    if isinstance(report.verdict, TimedOut) and is_quiet():
        assert report.wall_s < report.verdict.limit_s + GRACE_S
    return report.verdict


def is_quiet() -> bool:
    """Say whether this host had a core for everybody during the last minute."""
    return os.getloadavg()[0] < (os.cpu_count() or 1)


def is_variant(case: Case) -> bool:
    return case.name.removeprefix(f"{case.language}-") in VARIANTS.get(case.language, "").split()


def as_parameter(case: Case) -> ParameterSet:
    marks: list[pytest.MarkDecorator] = (
        [pytest.mark.xfail(strict=True, reason=case.header["open"])] if "open" in case.header else []
    )
    marks += [pytest.mark.long] if is_variant(case) else []
    return pytest.param(case, marks=marks, id=f"{case.kind}-{case.name}")


async def judge_patiently(case: Case, places: Places, builder: LocalBuilder, evaluator: LocalEvaluator) -> Verdict:
    """Judge it, and again while nothing can be said because the host is too busy to time on it."""
    why = ""
    for _ in range(TRIES):
        try:
            verdict = await judge(case, places, builder, evaluator)
        except EvaluatorError as error:
            if STARVED not in str(error):
                raise
            pytest.skip(f"this host is too busy to build on: {error}")
        if not isinstance(verdict, Unstable) or came_true(case, verdict) == "":
            return verdict
        why = verdict.reason
    pytest.skip(f"this host is too busy to time on: {why}")


@pytest.fixture(scope="module")
async def built_ahead(request: pytest.FixtureRequest, places: Places, builder: LocalBuilder) -> AsyncIterator[None]:
    """Candidates are built one behind the other while others are judged: a test then finds its own in the store."""
    chosen = [item.callspec.params["case"] for item in request.session.items if _is_ours(item)]

    async def build_all() -> None:
        for case in chosen:
            assert isinstance(case, Case)
            with suppress(EvaluatorError):  # its own test will see it
                await builder.build(build_job(case.candidate(places), target_for(case.language)))

    async with anyio.create_task_group() as group:
        group.start_soon(build_all)
        yield
        group.cancel_scope.cancel()


def _is_ours(item: pytest.Item) -> TypeGuard[pytest.Function]:
    return isinstance(item, pytest.Function) and item.module.__name__ == __name__


@pytest.mark.parametrize("case", [as_parameter(case) for case in CASES])
async def test_a_candidate_gets_the_verdict_of_its_header_and_leaves_nothing(
    case: Case, places: Places, builder: LocalBuilder, evaluator: LocalEvaluator, built_ahead: None
) -> None:
    try:
        with anyio.fail_after(PATIENCE_S):
            verdict = await judge_patiently(case, places, builder, evaluator)
    finally:
        left = leftovers(places)
    assert came_true(case, verdict) == ""
    assert left == []
    assert places["NONCE"] not in str(verdict), "a verdict quotes what only the user may read"
