"""Who compiles on first calls may start processes until then, and not while it is timed; by the kernel's word."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import evaluators
from evaluators.judge.candidate.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.candidate.runner import NativeLauncher
from evaluators.judge.check.terms import Place
from evaluators.judge.data.memory import make_buffers
from evaluators.judge.protocol import Artifact, Limits
from evaluators.languages import support_of
from evaluators.process.guard import descendants_of
from messages.tasks import TensorSpec
from messages.verdicts import Crashed, Rejected

TENSORS = [
    TensorSpec(name="x", role="input", shape=(4,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4,), dtype="float32"),
]
REFUSED = 7
RUNNER = f"""
import sys
sys.path.insert(0, {str(Path(evaluators.__file__).parents[1])!r})
import json, os, time
from evaluators.runners.base import LOADED, SEAL, bind_to_judge, map_areas, serve
from evaluators.runners.cuda import Sealing
from evaluators.process.sandbox.confine import confine
from evaluators.process.sandbox.profiles import run_cuda

spec = json.loads(sys.argv[-1])
bind_to_judge(spec["judge_pid"])
map_areas(spec)
confined = confine(run_cuda(spec["folder"], reads=(), file_bytes=1 << 20))
sealing = Sealing(confined)
seal = sealing.complete


def call():
    try:
        pid = os.fork()
    except OSError:
        return {REFUSED}
    if pid == 0:
        lives
        os._exit(0)
    waits
    return 0


tampered
calls = [call] * 99
serve(spec["control_fd"], spec["nonce"], lambda _: (LOADED, {{0: calls, 1: calls}}), isolation=confined.claim,
      others={{SEAL: seal}})
"""
"""A runner as on a GPU, but for the GPU: its candidate starts a process in every call, as a compiler would be."""


def places_of() -> list[Place]:
    """Return two workloads in one memory."""
    return [Place(buffers=buffers, number=number) for number, buffers in enumerate(make_buffers([TENSORS, TENSORS]))]


def side_of(
    folder: Path,
    places: list[Place],
    *,
    lives: str = "",
    waits: str = "os.waitpid(pid, 0)",
    tampered: str = "",
) -> CandidateSide:
    code = RUNNER.replace("lives", lives).replace("waits", waits).replace("tampered", tampered)
    return CandidateSide(
        places[0],
        Artifact(product=str(folder / "kernel.so"), entry_point="ksearch_run"),
        support_of("cpp"),
        NativeLauncher(code),
        Limits(),
        threads=1,
        others=places,
        keep=frozenset(descendants_of(os.getpid())),
    )


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CandidateSide]:
    monkeypatch.chdir(tmp_path)
    return lambda places=None, **how: side_of(tmp_path, places or places_of(), **how)


def refused(side: CandidateSide) -> Crashed | Rejected:
    """Call it once more; it fails."""
    with pytest.raises(CandidateFailedError) as failure:
        side.call(limit_s=10)
    verdict = failure.value.verdict
    assert isinstance(verdict, Crashed | Rejected)
    return verdict


def test_compilers_may_be_started_until_each_workload_was_called_once(start: Callable[..., CandidateSide]) -> None:
    places = places_of()
    with start(places) as side:
        side.load()
        assert "seccomp (may start compilers)" in side.isolation
        side.call(limit_s=10)
        side.call(limit_s=10)
        side.turn_to(places[1])
        side.call(limit_s=10)
        assert str(REFUSED) in refused(side).reason


def test_nothing_is_started_once_the_judge_has_said_so(start: Callable[..., CandidateSide]) -> None:
    with start() as side:
        side.load()
        side.call(limit_s=10)
        side.seal()
        assert str(REFUSED) in refused(side).reason


def test_a_runner_that_does_not_give_it_up_is_found_out_by_the_kernels_word(
    start: Callable[..., CandidateSide],
) -> None:
    with start(tampered="seal = lambda: 0") as side:
        side.load()
        side.call(limit_s=10)
        with pytest.raises(CandidateFailedError, match="did not give up the means to start others"):
            side.seal()


def test_what_was_started_before_and_lives_on_is_seen(start: Callable[..., CandidateSide]) -> None:
    before = descendants_of(os.getpid())
    with start(lives="time.sleep(60)", waits="pass") as side:
        side.load()
        side.expect_alone()
        side.call(limit_s=10)
        side.seal()
        with pytest.raises(CandidateFailedError, match="started a process that goes on between its calls"):
            side.expect_alone()
    assert not descendants_of(os.getpid()) - before


def test_a_new_process_is_sealed_anew(start: Callable[..., CandidateSide]) -> None:
    with start() as side:
        side.load()
        side.seal()
    with side:
        side.load()
        side.call(limit_s=10)
        side.seal()
        assert str(REFUSED) in refused(side).reason
