"""Findings are looked for once per task, and a cache that cannot be used is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.judge.intake.kept import cache_folder, kept_or_made
from messages.tasks import Intake, Tolerance
from tests.evaluators.judge.kernels import SOFTMAX


class Made:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> Intake:
        self.times += 1
        return Intake(fitness="marked", findings=(f"made {self.times}",))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_task_is_looked_at_once_per_tolerance_and_platform() -> None:
    made = Made()
    assert kept_or_made(SOFTMAX, "cpu", made) == kept_or_made(SOFTMAX, "cpu", made)
    assert made.times == 1
    kept_or_made(replace(SOFTMAX, tolerance=Tolerance(profile="flashinfer")), "cpu", made)
    kept_or_made(SOFTMAX, "cuda:0", made)
    kept_or_made(SOFTMAX, "cuda:1", made)
    assert made.times == 3


def test_damaged_findings_are_found_anew() -> None:
    made = Made()
    kept_or_made(SOFTMAX, "cpu", made)
    (path,) = cache_folder().iterdir()
    path.write_bytes(b'{"fitness":')
    assert kept_or_made(SOFTMAX, "cpu", made).findings == ("made 2",)
    assert kept_or_made(SOFTMAX, "cpu", made).findings == ("made 2",)


def test_a_folder_that_cannot_be_written_to_is_no_error(own_cache: Path) -> None:
    (own_cache / "ksearch").write_text("a file where a folder should be")
    made = Made()
    assert kept_or_made(SOFTMAX, "cpu", made).findings == ("made 1",)
