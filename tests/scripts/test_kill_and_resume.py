"""A real search that is killed goes on where it was: the script that checks it at many points, here at two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "kill_and_resume"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_search_that_is_killed_twice_is_resumed_and_nothing_is_lost_or_paid_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # of judges and candidates: several spin on a busy host
    command = [sys.executable, str(SCRIPT), "--points", "3", "--first", "2", "--rounds", "6"]
    command += ["--begun", "--earliest", "1", "--longest", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("point 2: 2 kills"), done.stdout
    assert done.stdout.splitlines()[-1] == "1 passed, 0 failed"
