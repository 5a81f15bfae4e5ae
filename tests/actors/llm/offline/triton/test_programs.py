"""Programs that the rules write, run by Triton's interpreter and compared with torch in float64; some are compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from actors.llm.offline.plan import Plan
from actors.llm.offline.reference import read_program
from actors.llm.offline.stages import NoRuleError, TensorInfo
from actors.llm.offline.triton.codegen import Contract, write_source
from tests.actors.llm.offline.references import reference
from tests.actors.llm.offline.triton.references import ROW_PLANS, ROWS

ROOT = Path(__file__).parents[5]
Case: TypeAlias = tuple[str, str, str]

RUN: list[Case] = [(f"{name}-{plan}", text, words) for name, text in ROWS.items() for plan, words in ROW_PLANS.items()]
INFINITE = reference(
    "x):\n        return torch.softmax(torch.where(x > 0.0, x, float('-inf')), dim=-1)", "[torch.randn(9, 130)]"
)
RUN.append(("infinite", INFINITE, "rows=2"))
COMPILED: list[Case] = [
    ("elementary_functions", ROWS["elementary_functions"], "exact"),
    ("long_rows", ROWS["long_rows"], "persistent=132 warps=16 stream"),
    ("rotated_halves", ROWS["rotated_halves"], "early"),
    ("two_stages", ROWS["two_stages"], "rows=4"),
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


def _found(program: str, cases: list[Case], **environment: str) -> dict[str, Any]:
    """Return what a program of this folder finds, by case; each of two processes does half of them."""
    with ThreadPoolExecutor(2) as pool:
        halves = pool.map(lambda half: json.loads(_done(program, half, **environment)), (cases[::2], cases[1::2]))
        return {name: what for half in halves for name, what in half.items()}


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """The largest error of each case, in units of what is allowed."""
    return _found("run_programs", RUN, TRITON_INTERPRET="1")


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    """Why each case does not compile; empty if it does."""
    return _found("compile_programs", COMPILED)


@pytest.mark.long
@pytest.mark.parametrize("case", [name for name, _, _ in RUN])
def test_a_program_computes_what_the_reference_computes(case: str, errors: dict[str, float]) -> None:
    assert errors[case] <= 1.0


@pytest.mark.long
@pytest.mark.parametrize("case", [name for name, _, _ in COMPILED])
def test_a_program_compiles_for_sm_90_without_such_a_gpu(case: str, reasons: dict[str, str]) -> None:
    assert reasons[case] == ""


def test_a_product_of_matrices_and_a_row_that_no_chip_holds_have_no_rule() -> None:
    assert "products of matrices" in refused("x @ w.t()", (4, 3), x=(4, 8), w=(3, 8))
    assert "more than 65536 columns" in refused("x.softmax(-1)", (2, 70_000), x=(2, 70_000))


def refused(result: str, output: tuple[int, ...], **inputs: tuple[int, ...]) -> str:
    tensors = [TensorInfo(name=name, role="input", shape=shape, dtype="float32") for name, shape in inputs.items()]
    tensors.append(TensorInfo(name="output", role="output", shape=output, dtype="float32"))
    program = read_program(reference(f"{', '.join(inputs)}):\n        return {result}", "[]"), tuple(tensors))
    contract = Contract(function="ksearch_run", arguments=(*inputs, "output"))
    with pytest.raises(NoRuleError) as raised:
        write_source([program], Plan(), contract)
    return str(raised.value)
