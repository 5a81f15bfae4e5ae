"""What a runner's end means: the candidate's fault only where the candidate was there."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

import evaluators
from evaluators.judge.candidate.candidate import CandidateSide
from evaluators.judge.candidate.runner import NativeLauncher, RunnerError
from evaluators.judge.check.terms import Instance, Place, Terms
from evaluators.judge.data.memory import make_buffers
from evaluators.judge.protocol import Artifact, Limits
from evaluators.languages import support_of
from evaluators.process.guard import descendants_of
from messages.tasks import ModuleTerms, TensorSpec

TENSORS = [
    TensorSpec(name="x", role="input", shape=(4,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4,), dtype="float32"),
]
RUNNER = f"""
import sys
sys.path.insert(0, {str(Path(evaluators.__file__).parents[1])!r})
import json, os
from evaluators.runners.base import LOADED, bind_to_judge, map_areas, serve

spec = json.loads(sys.argv[-1])
bind_to_judge(spec["judge_pid"])
map_areas(spec)
isolation = 1
serve(spec["control_fd"], spec["nonce"], lambda _: (LOADED, {{0: [lambda: 0] * 99}}), isolation=isolation)
"""
LESS_AND_LESS = RUNNER.replace(
    "isolation = 1",
    """
note = os.path.join(spec["cache"], "was here")
isolation = 1 if os.path.exists(note) else 3
open(note, "w").close()""",
)


@pytest.fixture(autouse=True)
def _judges_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def module_of(runner: str, tmp_path: Path) -> CandidateSide:
    """Return a candidate with parameters, of which each process holds one set."""
    terms = Terms(module=Instance(made=ModuleTerms()))
    return CandidateSide(
        Place(buffers=make_buffers([TENSORS])[0], terms=terms),
        Artifact(product=str(tmp_path / "kernel.so"), entry_point="ksearch_run"),
        support_of("cpp"),
        NativeLauncher(runner),
        Limits(),
        threads=1,
        keep=frozenset(descendants_of(os.getpid())),
    )


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.abort()", "os.write(9, b'?')"])
def test_a_runner_that_ends_before_it_loads_anything_is_the_evaluators_failure(end: str, tmp_path: Path) -> None:
    side = CandidateSide(
        Place(buffers=make_buffers([TENSORS])[0]),
        Artifact(product=str(tmp_path / "kernel.so"), entry_point="ksearch_run"),
        support_of("cpp"),
        NativeLauncher(f"import os, sys; print('a module is missing', flush=True); {end}"),
        Limits(),
        threads=1,
        keep=frozenset(descendants_of(os.getpid())),
    )
    with side, pytest.raises(RunnerError, match=r"before it had loaded a candidate; it said: a module is missing"):
        side.load()
    assert not list(tmp_path.glob("run-*"))


def test_a_process_that_is_behind_less_than_the_one_before_it_is_the_evaluators_failure(tmp_path: Path) -> None:
    with module_of(LESS_AND_LESS, tmp_path) as side:
        side.load()
        side.hold((torch.zeros(1),))
        with pytest.raises(RunnerError, match="a runner is behind rlimits, the one before it was behind no privileges"):
            side.hold((torch.ones(1),))


def test_other_parameters_are_held_by_another_process(tmp_path: Path) -> None:
    before = {*descendants_of(os.getpid())}
    with module_of(RUNNER, tmp_path) as side:
        side.load()
        given = (torch.zeros(1),)
        side.hold(given)
        first = side.pid
        side.hold(given)
        assert side.pid == first
        side.hold((torch.ones(1),))
        assert {*descendants_of(os.getpid())} - before == {side.pid}
        assert side.pid != first
        assert side.call(limit_s=10).status == 0
    assert {*descendants_of(os.getpid())} == before
    assert not list(tmp_path.glob("run-*"))


def test_a_process_that_was_got_ready_holds_the_other_parameters_and_outlives_the_first(tmp_path: Path) -> None:
    before = {*descendants_of(os.getpid())}
    with module_of(RUNNER, tmp_path) as side:
        side.load()
        side.hold((torch.zeros(1),))
        first = side.pid
        side.get_another_ready()
        side.get_another_ready()
        (ready,) = {*descendants_of(os.getpid())} - before - {first}
        side.hold((torch.ones(1),))
        assert side.pid == ready
        assert {*descendants_of(os.getpid())} - before == {ready}
        assert side.call(limit_s=10).status == 0
    assert not list(tmp_path.glob("run-*"))


def test_a_process_that_ended_while_it_waited_is_replaced(tmp_path: Path) -> None:
    with module_of(RUNNER, tmp_path) as side:
        side.load()
        side.hold((torch.zeros(1),))
        before = {*descendants_of(os.getpid())}
        side.get_another_ready()
        (ready,) = {*descendants_of(os.getpid())} - before
        os.kill(ready, signal.SIGKILL)
        os.waitid(os.P_PID, ready, os.WEXITED | os.WNOWAIT)
        side.hold((torch.ones(1),))
        assert side.pid != ready
        assert side.call(limit_s=10).status == 0
    assert not list(tmp_path.glob("run-*"))


def test_a_process_that_was_got_ready_in_vain_ends_with_the_first(tmp_path: Path) -> None:
    before = {*descendants_of(os.getpid())}
    with module_of(RUNNER, tmp_path) as side:
        side.load()
        side.get_another_ready()
    assert {*descendants_of(os.getpid())} == before
    assert not list(tmp_path.glob("run-*"))
