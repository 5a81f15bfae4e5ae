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

from actors.llm.offline.graph import TensorInfo
from actors.llm.offline.plan import Plan
from actors.llm.offline.program import read_program
from actors.llm.offline.triton.codegen import Contract, write_source
from tests.actors.llm.offline.references import reference
from tests.actors.llm.offline.triton.references import PRODUCT_PLANS, PRODUCTS, ROW_PLANS, ROWS

ROOT = Path(__file__).parents[5]
Case: TypeAlias = tuple[str, str, str]

RUN: list[Case] = [
    (f"{name}-{plan}", text, words)
    for references, plans in ((ROWS, ROW_PLANS), (PRODUCTS, PRODUCT_PLANS))
    for name, text in references.items()
    for plan, words in plans.items()
]
INFINITE = reference(
    "x):\n        return torch.softmax(torch.where(x > 0.0, x, float('-inf')), dim=-1)", "[torch.randn(9, 130)]"
)
RUN += [
    ("softmax_by_hand-online", ROWS["softmax_by_hand"], "fuse online columns=32 rows=2"),
    ("softmax_by_hand-online-wide", ROWS["softmax_by_hand"], "fuse online columns=64 wide exact persistent=2"),
    ("long_rows-online", ROWS["long_rows"], "fuse online"),
    ("infinite-online", INFINITE, "fuse online columns=32 rows=2"),
]
RUN.append(("rmsnorm-early", ROWS["rms_norm_with_gate"], "fuse early rows=4"))
COMPILED: list[Case] = [
    ("elementary_functions", ROWS["elementary_functions"], "fuse exact"),
    ("long_rows", ROWS["long_rows"], "fuse columns=1024 stages=3 persistent=132 stream"),
    ("long_rows_online", ROWS["long_rows"], "fuse online columns=4096 warps=16 stream"),
    ("linear_gelu", PRODUCTS["linear_gelu"], "fuse tensor_cores block_m=128 block_n=64 warps=8 stages=4 group=8"),
    ("linear_bfloat16", PRODUCTS["linear_bfloat16"], "fuse warps=2"),
    ("triangle", PRODUCTS["triangle"], "fuse together"),
    ("grouped_decoding", PRODUCTS["grouped_decoding"], "fuse"),
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


@pytest.mark.parametrize(("on_gpu", "operand"), [(True, "left"), (False, "left.to(tl.float32)")])
def test_bfloat16_is_multiplied_as_it_is_where_that_is_right(on_gpu: bool, operand: str) -> None:
    tensors = tuple(
        TensorInfo(name=name, role="output" if name == "output" else "input", shape=shape, dtype="bfloat16")
        for name, shape in (("x", (20, 48)), ("w", (33, 48)), ("b", (33,)), ("output", (20, 33)))
    )
    contract = Contract(function="ksearch_run", arguments=("x", "w", "b", "output"), on_gpu=on_gpu)
    program = read_program(PRODUCTS["linear_bfloat16"], tensors)
    assert f"tl.dot({operand}, right, acc" in write_source(program, Plan(fuse=True), contract)


def test_a_sum_that_waits_for_nothing_saves_a_pass() -> None:
    tensors = (
        TensorInfo(name="x", role="input", shape=(3, 17001), dtype="float32"),
        TensorInfo(name="w", role="input", shape=(17001,), dtype="float32"),
        TensorInfo(name="output", role="output", shape=(3, 17001), dtype="float32"),
    )
    program = read_program(ROWS["long_rows"], tensors)
    contract = Contract(function="ksearch_run", arguments=("x", "w", "output"))
    plans = (Plan(fuse=True, online=online) for online in (False, True))
    assert [write_source(program, plan, contract).count("tl.range(") for plan in plans] == [3, 2]
