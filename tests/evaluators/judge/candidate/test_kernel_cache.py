"""What a candidate's processes leave to each other, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.judge.candidate.candidate import cache_of, forget
from evaluators.judge.protocol import Artifact


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def artifact(number: int) -> Artifact:
    return Artifact(product=f"/artifacts/{number}/kernel.py", entry_point="ModelNew")


def test_timing_finds_what_checks_on_the_same_workloads_left_and_nothing_of_those_on_hidden_ones() -> None:
    (cache_of(artifact(1), 3) / "kernel").touch()
    assert (cache_of(artifact(1), 3) / "kernel").exists()
    assert not (cache_of(artifact(1), 4) / "kernel").exists()
    assert not (cache_of(artifact(2), 3) / "kernel").exists()


def test_another_evaluation_of_the_same_artifact_finds_nothing() -> None:
    for number, workloads in ((1, 3), (1, 4), (2, 3)):
        (cache_of(artifact(number), workloads) / "note").touch()
    forget(artifact(1))
    assert not (cache_of(artifact(1), 3) / "note").exists()
    assert not (cache_of(artifact(1), 4) / "note").exists()
    assert (cache_of(artifact(2), 3) / "note").exists()
