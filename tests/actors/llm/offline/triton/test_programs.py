"""Programs that the rules write, run by Triton's interpreter and compared with torch in float64; some are compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.actors.llm.offline.triton.references import PRODUCT_PLANS, PRODUCTS, ROW_PLANS, ROWS

ROOT = Path(__file__).parents[5]
Case: TypeAlias = tuple[str, str, str]

RUN: list[Case] = [
    (f"{name}-{plan}", text, words)
    for references, plans in ((ROWS, ROW_PLANS), (PRODUCTS, PRODUCT_PLANS))
    for name, text in references.items()
    for plan, words in plans.items()
]
COMPILED: list[Case] = [
    ("elementary_functions", ROWS["elementary_functions"], "fuse exact"),
    ("long_rows", ROWS["long_rows"], "fuse columns=1024 stages=3 persistent=132 stream"),
    ("linear_gelu", PRODUCTS["linear_gelu"], "fuse tensor_cores block_m=128 block_n=64 warps=8 stages=4 group=8"),
    ("linear_bfloat16", PRODUCTS["linear_bfloat16"], "fuse warps=2"),
    ("triangle", PRODUCTS["triangle"], "fuse together"),
    ("grouped_decoding", PRODUCTS["grouped_decoding"], "fuse online skip"),
]


def _done(program: str, cases: list[Case], **environment: str) -> str:
    """Return what a program of this folder prints about cases."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.actors.llm.offline.triton.{program}"],
        cwd=ROOT,
        env={**os.environ, **environment},
        input=json.dumps({"cases": cases}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """The largest error of each case, in units of what is allowed."""
    found: dict[str, float] = json.loads(_done("run_programs", RUN, TRITON_INTERPRET="1"))
    return found


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    """Why each case does not compile; empty if it does."""
    found: dict[str, str] = json.loads(_done("compile_programs", COMPILED))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name, _, _ in RUN])
def test_a_program_computes_what_the_reference_computes(case: str, errors: dict[str, float]) -> None:
    assert errors[case] <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name, _, _ in COMPILED])
def test_a_program_compiles_for_sm_90_without_such_a_gpu(case: str, reasons: dict[str, str]) -> None:
    assert reasons[case] == ""
