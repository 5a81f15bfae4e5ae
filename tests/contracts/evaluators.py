"""What every builder and every evaluator promises, as tests; a sibling's test file is fixtures and empty subclasses."""

from __future__ import annotations

import anyio

from evaluators.base import Builder, BuildReport, EvaluationReport, Evaluator
from messages.events import Built
from messages.tasks import Candidate, Target, TaskSpec
from messages.verdicts import DidNotBuild, Measured, Unstable, Verdict, Wrong
from tests.evaluators.patience import patiently
from tests.evaluators.words import build_job, evaluate_job


class BuilderContract:
    """Needs the fixtures `builder`, `target`, `good` (a candidate that builds) and `bad` (one that does not)."""

    async def test_a_candidate_that_builds_has_an_artifact(
        self, builder: Builder, target: Target, good: Candidate
    ) -> None:
        report = await builder.build(build_job(good, target))
        assert isinstance(report.outcome, Built)
        assert report.outcome.artifact_id

    async def test_the_second_build_of_the_same_is_cached_and_costs_no_cpu(
        self, builder: Builder, target: Target, good: Candidate
    ) -> None:
        first = await builder.build(build_job(good, target))
        second = await builder.build(build_job(good, target))
        assert second.outcome == first.outcome
        assert second.cached
        assert second.cpu_s == 0

    async def test_one_that_does_not_build_is_a_verdict_with_a_reason(
        self, builder: Builder, target: Target, bad: Candidate
    ) -> None:
        report = await builder.build(build_job(bad, target))
        assert isinstance(report.outcome, DidNotBuild)
        assert report.outcome.reason

    async def test_the_same_candidate_may_be_built_many_times_at_once(
        self, builder: Builder, target: Target, good: Candidate
    ) -> None:
        reports: list[BuildReport] = []

        async def build() -> None:
            reports.append(await builder.build(build_job(good, target)))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(build)
        assert len({report.outcome for report in reports}) == 1


class EvaluatorContract:
    """Needs `builder`, `evaluator`, `target`, `task`, `good` (right) and `wrong` (builds, but its output is wrong)."""

    async def test_a_right_candidate_is_measured(
        self, builder: Builder, evaluator: Evaluator, target: Target, task: TaskSpec, good: Candidate
    ) -> None:
        built = (await builder.build(build_job(good, target))).outcome
        assert isinstance(built, Built)
        reports: list[EvaluationReport] = []

        async def evaluate() -> Verdict:
            reports.append(await evaluator.evaluate(evaluate_job(good, built.artifact_id, target, task)))
            return reports[-1].verdict

        assert isinstance(await patiently(evaluate), Measured)
        assert reports[-1].device
        assert reports[-1].wall_s >= reports[-1].lease_s >= 0

    async def test_a_wrong_one_is_a_verdict_not_an_error(
        self, builder: Builder, evaluator: Evaluator, target: Target, task: TaskSpec, wrong: Candidate
    ) -> None:
        built = (await builder.build(build_job(wrong, target))).outcome
        assert isinstance(built, Built)
        report = await evaluator.evaluate(evaluate_job(wrong, built.artifact_id, target, task))
        assert isinstance(report.verdict, Wrong)

    async def test_several_may_be_judged_at_once(
        self, builder: Builder, evaluator: Evaluator, target: Target, task: TaskSpec, good: Candidate, wrong: Candidate
    ) -> None:
        verdicts: dict[str, Verdict] = {}

        async def judge(name: str, candidate: Candidate) -> None:
            built = (await builder.build(build_job(candidate, target))).outcome
            assert isinstance(built, Built)
            report = await evaluator.evaluate(evaluate_job(candidate, built.artifact_id, target, task))
            verdicts[name] = report.verdict

        async with anyio.create_task_group() as group:
            group.start_soon(judge, "good", good)
            group.start_soon(judge, "wrong", wrong)
        assert isinstance(verdicts["good"], Measured | Unstable)
        assert isinstance(verdicts["wrong"], Wrong)
