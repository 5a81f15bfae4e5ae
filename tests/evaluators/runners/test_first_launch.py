"""A process that is forked from a warm one imports and reads nothing in its first launch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def doubled(x_ptr, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    tl.store(x_ptr + place, 2 * tl.load(x_ptr + place))
"""
LAUNCH = """
import builtins, json, sys
import torch
import triton.language
from triton.backends import backends
from evaluators.languages.triton.absent import pretend_gpu
from evaluators.runners.warm import be_ready_to_launch
from kernel import doubled

if sys.argv[1] == "ready":
    be_ready_to_launch()
with pretend_gpu(90):
    before, read, really_open = {*sys.modules}, [], open
    builtins.open = lambda file, *how, **more: read.append(str(file)) or really_open(file, *how, **more)
    doubled.run(torch.empty(64, device="cuda"), BLOCK=64, grid=(1,), warmup=True)
    builtins.open = really_open
package = triton.__path__[0]
sources = [name for name in read if name.startswith(package) and name.endswith(".py")]
print(json.dumps([sorted({*sys.modules} - before), sources]))
"""


def launched(folder: Path, how: str) -> tuple[list[str], list[str]]:
    """Return what a first launch imports, and which of Triton's sources it reads."""
    (folder / "kernel.py").write_text(KERNEL)
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[3])])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder / how)}
    command = [sys.executable, "-c", LAUNCH, how]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120)
    imported, read = json.loads(done.stdout.splitlines()[-1])
    return imported, read


def test_whoever_is_ready_to_launch_imports_nothing_then_and_reads_no_source(tmp_path: Path) -> None:
    imported, read = launched(tmp_path, "unready")
    assert imported, "Triton imports nothing late any more: first_launch.py need not either"
    assert read
    assert launched(tmp_path, "ready") == ([], [])
