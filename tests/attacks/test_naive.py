"""What the collection calls cheats fools a naive judge: each is run there, too, and must be believed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.cases import Case, Places, load_cases
from tests.attacks.places import leftovers

NAIVE = Path(__file__).with_name("naive.py")
CASES = [case for case in load_cases("cheats") if not case.header.get("naive", "").startswith("by hand")]
STANDS_FOR = "evaluators"
"""What cheats that look for a judge's processes know them by: nothing else here need be one."""
STALLS_US = 1500
"""Least time per call of those that stall."""


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in CASES if case.language == "cpp"], ids=lambda case: str(case.name))
def test_a_naive_judge_believes_the_cheat(case: Case, places: Places, tmp_path: Path) -> None:
    for file in case.candidate(places).files:
        (tmp_path / file.path).write_text(file.text, encoding="utf-8")
    compile_it = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-fopenmp", "main.cpp", "-o", "kernel.so"]
    subprocess.run(compile_it, cwd=tmp_path, check=True, capture_output=True)
    flavour = case.header.get("naive", "same data")
    command = [sys.executable, "-I", "-S", str(NAIVE), str(tmp_path / "kernel.so"), case.task.name, flavour, STANDS_FOR]
    environment = {"KSEARCH_ATTACK_KEY": places["KEY"]}
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=30
    )
    leftovers(places)
    # It passed, or nobody is left to say that it did not.
    assert ran.returncode in {0, -9}, ran
    if case.expect == "slow":
        told_us = [float(line.partition(":")[2]) for line in ran.stdout.splitlines() if line.startswith("mean_us:")]
        assert min(told_us) < STALLS_US
