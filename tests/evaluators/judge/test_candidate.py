"""What a runner's end means: the candidate's fault only where the candidate was there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from evaluators.guard import descendants_of
from evaluators.judge.candidate import CandidateSide
from evaluators.judge.launching import NativeLauncher, RunnerError
from evaluators.judge.memory import make_buffers
from evaluators.judge.place import Place
from evaluators.judge.protocol import Artifact, Limits
from evaluators.languages import support_of
from messages.tasks import TensorSpec

TENSORS = [
    TensorSpec(name="x", role="input", shape=(4,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(4,), dtype="float32"),
]


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.abort()", "os.write(9, b'?')"])
def test_a_runner_that_ends_before_it_loads_anything_is_the_evaluators_failure(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
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
