"""Programs that the rules write, run by Triton's interpreter and compared with torch in float64; some are compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.llm.offline.triton.references import PRODUCT_PLANS, PRODUCTS, ROW_PLANS, ROWS

ROOT = Path(__file__).parents[5]
CASES = [
    (f"{name}-{plan}", text, words)
    for references, plans in ((ROWS, ROW_PLANS), (PRODUCTS, PRODUCT_PLANS))
    for name, text in references.items()
    for plan, words in plans.items()
]


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """The largest error of each case, in units of what is allowed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.actors.llm.offline.triton.run_programs"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        input=json.dumps({"cases": CASES}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name, _, _ in CASES])
def test_a_program_computes_what_the_reference_computes(case: str, errors: dict[str, float]) -> None:
    assert errors[case] <= 1.0
