"""Programs of several stages that the rules write, compiled and held to the judge's own bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.llm.offline.cpp.references import PLANS, REFERENCES

ROOT = Path(__file__).parents[5]
_INVOLVED = 4
CASES = [
    (f"{name}-{number}", REFERENCES[name], plan)
    for place, name in enumerate(REFERENCES)
    for number, plan in enumerate(PLANS)
    if number == place % len(PLANS) or (number == _INVOLVED and place % 2)
]
"""Each reference by one plan, every other one by the most involved plan too."""


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """The largest error of each case, in units of what is allowed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.actors.llm.offline.cpp.run_programs"],
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


@pytest.mark.long
@pytest.mark.parametrize("case", [name for name, _, _ in CASES])
def test_a_program_computes_what_the_reference_computes(case: str, errors: dict[str, float]) -> None:
    assert errors[case] <= 1.0
