"""Builder and evaluator at the far end of a line keep the contracts of those beside us; the line here is short."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from evaluators.remote import modal_line
from evaluators.remote.far import Far
from evaluators.remote.modal_line import require_modal
from evaluators.remote.near import RemoteBuilder, RemoteEvaluator
from evaluators.simulated import SIMULATED, SimulatedBuilder, SimulatedEvaluator
from messages.base import ConfigError, EvaluatorError, Language
from messages.events import Built
from messages.tasks import Candidate, Target, TaskDescription, TaskSpec
from messages.verdicts import DidNotBuild, Measured, Verdict, Wrong
from tests.contracts.evaluators import BuilderContract, EvaluatorContract
from tests.evaluators.words import SMALL_TASK, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio


class LocalLine:
    """A line of the same interface as Modal's, to a far side in this process."""

    def __init__(self, far: Far) -> None:
        self.far = far
        self.closed = False

    async def call(self, request: bytes) -> bytes:
        return await self.far.answer(request)

    async def aclose(self) -> None:
        self.closed = True


class DescribingSimulated(SimulatedEvaluator):
    """A simulated evaluator that knows nothing of any task."""

    async def describe_task(self, task: TaskSpec, language: Language) -> TaskDescription:
        raise ConfigError(f"{task.name} in {language} cannot be used")


def outcome_of(candidate: Candidate) -> DidNotBuild | None:
    return DidNotBuild(reason="scripted") if candidate.files[0].text == "bad" else None


def verdict_of(candidate: Candidate) -> Verdict:
    if candidate.files[0].text == "broken":
        raise EvaluatorError("the device fell off", permanent=True)
    return Wrong(reason="scripted") if candidate.files[0].text == "wrong" else Measured(timed=False)


def far_side() -> Far:
    return Far(SimulatedBuilder(outcome_of), DescribingSimulated(verdict_of), lambda _language: SIMULATED)


@pytest.fixture
def line() -> LocalLine:
    return LocalLine(far_side())


@pytest.fixture
def builder(line: LocalLine) -> RemoteBuilder:
    return RemoteBuilder(line)


@pytest.fixture
def evaluator(line: LocalLine, builder: RemoteBuilder) -> RemoteEvaluator:
    return RemoteEvaluator(line, builder)


@pytest.fixture
def target() -> Target:
    return SIMULATED


@pytest.fixture
def task() -> TaskSpec:
    return SMALL_TASK


@pytest.fixture
def good() -> Candidate:
    return cpp("good")


@pytest.fixture
def bad() -> Candidate:
    return cpp("bad")


@pytest.fixture
def wrong() -> Candidate:
    return cpp("wrong")


class TestRemoteBuilder(BuilderContract):
    """The contract of builders."""


class TestRemoteEvaluator(EvaluatorContract):
    """The contract of evaluators."""


async def test_the_far_side_says_what_it_builds_for(evaluator: RemoteEvaluator) -> None:
    assert await evaluator.probe("cpp") == SIMULATED


async def test_errors_of_the_far_side_are_raised_here_by_their_kind(
    builder: RemoteBuilder, evaluator: RemoteEvaluator
) -> None:
    with pytest.raises(ConfigError, match="small in cpp cannot be used"):
        await evaluator.describe_task(SMALL_TASK, "cpp")
    broken = cpp("broken")
    built = (await builder.build(build_job(broken, SIMULATED))).outcome
    assert isinstance(built, Built)
    with pytest.raises(EvaluatorError, match="the device fell off") as caught:
        await evaluator.evaluate(evaluate_job(broken, built.artifact_id, SIMULATED))
    assert caught.value.permanent


async def test_a_machine_that_did_not_build_it_builds_it_before_it_judges(line: LocalLine, good: Candidate) -> None:
    builder = RemoteBuilder(line)
    built = (await builder.build(build_job(good, SIMULATED))).outcome
    assert isinstance(built, Built)
    line.far = far_side()
    report = await RemoteEvaluator(line, builder).evaluate(evaluate_job(good, built.artifact_id, SIMULATED))
    assert isinstance(report.verdict, Measured)


async def test_what_was_built_elsewhere_is_refused(evaluator: RemoteEvaluator, good: Candidate) -> None:
    with pytest.raises(EvaluatorError, match="was not built by way of this process"):
        await evaluator.evaluate(evaluate_job(good, "another", SIMULATED))


async def test_an_answer_that_is_none_is_the_far_sides_fault(line: LocalLine) -> None:
    class Talker(LocalLine):
        """Answers with half a text."""

        async def call(self, request: bytes) -> bytes:
            return (await super().call(request))[:-1]

    builder = RemoteBuilder(line := Talker(line.far))
    with pytest.raises(EvaluatorError, match="not understood"):
        await RemoteEvaluator(line, builder).probe("cpp")


async def test_closing_lets_the_far_side_go_and_ends_evaluating(line: LocalLine, evaluator: RemoteEvaluator) -> None:
    await evaluator.aclose()
    assert line.closed
    with pytest.raises(EvaluatorError, match="was closed"):
        await evaluator.evaluate(evaluate_job(cpp("good"), "a", SIMULATED))


@pytest.mark.parametrize(
    ("is_there", "environment", "said"),
    [
        (False, {}, r"pip install 'ksearch-async\[modal\]'"),
        (True, {}, "run 'modal setup', or set MODAL_TOKEN_ID"),
        (True, {"MODAL_TOKEN_ID": "a"}, "run 'modal setup'"),
        (True, {"MODAL_TOKEN_ID": "a", "MODAL_TOKEN_SECRET": "b"}, ""),
    ],
)
async def test_without_package_or_account_it_is_said_how_to_get_them(
    is_there: bool, environment: Mapping[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modal_line, "find_spec", lambda _name: object() if is_there else None)
    if said:
        with pytest.raises(ConfigError, match=said):
            require_modal(environment, tmp_path)
    else:
        require_modal(environment, tmp_path)


async def test_an_account_may_stand_in_modals_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modal_line, "find_spec", lambda _name: object())
    (tmp_path / ".modal.toml").touch()
    require_modal({}, tmp_path)


@pytest.mark.parametrize(
    ("device", "gpu"), [("modal", "H100"), ("modal:H200", "H200"), ("cuda:0", None), ("cpu", None)]
)
async def test_a_device_of_modals_names_a_gpu(device: str, gpu: str | None) -> None:
    assert modal_line.gpu_of(device) == gpu
