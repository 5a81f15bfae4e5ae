"""Programs that the rules write, compiled and compared with torch in float64."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.llm.offline.references import PLANS, REFERENCES

ROOT = Path(__file__).parents[4]
CASES = [(f"{name}-{plan}", REFERENCES[name], PLANS[plan]) for name in REFERENCES for plan in ("plain", "everything")]
CASES.append(("rms_norm_with_gate-plain_lanes", REFERENCES["rms_norm_with_gate"], PLANS["plain_lanes"]))


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """The largest error of each case, in units of what is allowed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.actors.llm.offline.run_programs"],
        cwd=ROOT,
        input=json.dumps({"cases": CASES}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", [name for name, _, _ in CASES])
def test_a_program_computes_what_the_reference_computes(case: str, errors: dict[str, float]) -> None:
    assert errors[case] <= 1.0
