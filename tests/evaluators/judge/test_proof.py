"""A node's proof of itself passes on a sound host, and says what is wrong on one that is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.proof import prove_builder, prove_evaluator
from evaluators.local import LocalEvaluator
from evaluators.simulated import SIMULATED, SimulatedBuilder, SimulatedEvaluator
from messages.base import EvaluatorError, Language
from messages.verdicts import Crashed, DidNotBuild, Interval, Measured, Unstable, Verdict, Wrong
from tests.evaluators.patience import too_busy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def evaluator(tmp_path: Path) -> AsyncIterator[LocalEvaluator]:
    evaluator = LocalEvaluator(tmp_path, slots=1)
    yield evaluator
    await evaluator.aclose()


@pytest.mark.quiet
@pytest.mark.long
@pytest.mark.parametrize("language", ["cpp", "triton", "python"])
async def test_a_sound_host_proves_itself(language: Language, tmp_path: Path, evaluator: LocalEvaluator) -> None:
    target = probe_target(language)
    await prove_builder(LocalBuilder(tmp_path), language, target)
    try:
        await prove_evaluator(LocalBuilder(tmp_path), evaluator, language, target)
    except EvaluatorError as error:
        if "judged unstable" not in str(error):
            raise
        too_busy(str(error))


async def test_a_builder_that_refuses_what_is_right_fails() -> None:
    builder = SimulatedBuilder(lambda _: DidNotBuild(reason="no memory"))
    with pytest.raises(EvaluatorError, match="does not build here: no memory"):
        await prove_builder(builder, "cpp", SIMULATED)


async def test_a_builder_that_builds_anything_fails() -> None:
    with pytest.raises(EvaluatorError, match="no program was built"):
        await prove_builder(SimulatedBuilder(), "cpp", SIMULATED)


async def test_an_evaluator_that_measures_what_is_wrong_fails() -> None:
    everything_is_right = SimulatedEvaluator(lambda _: Measured(timed=False))
    with pytest.raises(EvaluatorError, match="wrong cpp kernel was judged measured"):
        await prove_evaluator(SimulatedBuilder(), everything_is_right, "cpp", SIMULATED)


async def test_an_evaluator_on_which_what_is_right_crashes_fails() -> None:
    everything_crashes = SimulatedEvaluator(lambda _: Crashed(reason="signal 4"))
    with pytest.raises(EvaluatorError, match="right cpp kernel was judged crashed: signal 4"):
        await prove_evaluator(SimulatedBuilder(), everything_crashes, "cpp", SIMULATED)


@pytest.mark.virtual_time
@pytest.mark.parametrize("disturbed", [1, 4, 5])
async def test_a_device_that_is_disturbed_for_a_moment_is_tried_again(disturbed: int) -> None:
    verdicts = [Unstable(reason="±33%", speedup_interval=Interval(low=0.7, high=1.3))] * disturbed
    told: list[Verdict] = [*verdicts, Measured(timed=False), Wrong(reason="x")]
    evaluator = SimulatedEvaluator(lambda _: told.pop(0))
    if disturbed < 5:
        await prove_evaluator(SimulatedBuilder(), evaluator, "cpp", SIMULATED)
        assert not told
    else:
        with pytest.raises(EvaluatorError, match="right cpp kernel was judged unstable: ±33%"):
            await prove_evaluator(SimulatedBuilder(), evaluator, "cpp", SIMULATED)


async def test_an_evaluator_that_finds_everything_wrong_fails() -> None:
    with pytest.raises(EvaluatorError, match="right cpp kernel was judged wrong"):
        await prove_evaluator(SimulatedBuilder(), SimulatedEvaluator(lambda _: Wrong(reason="x")), "cpp", SIMULATED)
