"""A process that runs Python programs with torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.evaluators.process.sandbox.confined import ROOT

PROGRAM = """
import json, sys, tempfile, torch
from evaluators.process.sandbox.confine import confine
from evaluators.process.sandbox.profiles import run_interpreted
folder, program = sys.argv[1:]
confine(run_interpreted(folder, reads=(program,), memory_bytes=0, file_bytes=1 << 20))
torch.set_num_threads(2)
x = torch.rand(600, 600)
told = {"threads": torch.get_num_threads(), "right": torch.allclose(x @ x, (x.double() @ x.double()).float(), 1e-3)}
import torch.fft, sqlite3  # not imported before
told["temporary"] = tempfile.mkdtemp().startswith(folder)
try:
    import evaluators.tasks
except ImportError:
    told["hides_problems"] = True
print(json.dumps(told))
"""


def test_torch_computes_on_threads_and_imports_what_is_installed_but_not_our_problems(tmp_path: Path) -> None:
    for name in ("folder", "program"):
        (tmp_path / name).mkdir()
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path / "folder"), str(tmp_path / "program")]
    environment = {**os.environ, "PYTHONPATH": ROOT, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"threads": 2, "right": True, "temporary": True, "hides_problems": True}
