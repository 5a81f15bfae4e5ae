"""Loops that the rules say are vectors are vectors, on CPUs without mask registers too. Needs g++, which tells."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.llm.offline.references import REFERENCES

ROOT = Path(__file__).parents[4]
PLAN = "fuse threads vectorise stream"
NAMES = ("rms_norm_with_gate", "softmax_by_hand", "gelu_chain", "elementary_functions", "bfloat16")
_TOLD = re.compile(r"kernel\.cpp:(\d+):\d+: optimized: loop vectorized")

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """The program of each reference."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.actors.llm.offline.run_programs", "write"],
        cwd=ROOT,
        input=json.dumps({"cases": [(name, REFERENCES[name], PLAN) for name in NAMES]}),
        capture_output=True,
        text=True,
        timeout=110,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", NAMES)
def test_every_loop_that_is_said_to_be_a_vector_is_one(
    name: str, level: str, sources: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "kernel.cpp").write_text(sources[name])
    command = (
        "g++",
        "-std=c++17",
        "-O3",
        "-fopenmp",
        f"-march={level}",
        "-fopt-info-vec-optimized",
        "-c",
        "kernel.cpp",
    )
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True).stderr
    places = [int(line) for line in _TOLD.findall(told)]
    # The compiler names a line of the loop's body.
    loops = [number for number, line in enumerate(sources[name].splitlines(), 1) if "omp simd" in line]
    ends = [*loops[1:], len(sources[name].splitlines())]
    scalar = [begun for begun, end in zip(loops, ends, strict=True) if not any(begun < at < end for at in places)]
    assert loops
    assert not scalar, told
