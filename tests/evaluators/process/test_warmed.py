"""The warm process that builds and judges are forked from: when it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

ROOT = Path(__file__).resolve().parents[3]
STARTER = """
import sys, time
from evaluators.process.guarded import plain_environment
from evaluators.process.guarded import WarmProcess

warm = WarmProcess("imports_for_ever", environment=plain_environment(PYTHONPATH=f"{sys.argv[1]}:{sys.argv[2]}"))
warm.begin()
print(flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_a_warm_process_ends_with_who_started_it_also_while_it_imports(how: str, tmp_path: Path) -> None:
    (tmp_path / "imports_for_ever.py").write_text("import time\nprint(flush=True)\ntime.sleep(600)\n")
    command = [sys.executable, "-c", STARTER, str(ROOT), str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        starter.stdout.readline()
        (warm,) = psutil.Process(starter.pid).children()
        getattr(starter, how)()
    _, alive = psutil.wait_procs([warm], timeout=10)
    for process in alive:
        process.kill()
    assert not alive
