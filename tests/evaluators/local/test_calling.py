"""Candidates of tasks that take nests and numbers: functions, destinations, and what is passed by value."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.protocol import INTERPRETED_LIMITS, Limits
from evaluators.local import LocalEvaluator
from messages.base import Language
from messages.calls import Calling
from messages.tasks import Candidate, SourceFile, TaskRules, TaskSpec
from messages.verdicts import Crashed, Measured, Outpaced, Unstable, Verdict, Wrong
from tests.evaluators.judging import Judging

pytestmark = pytest.mark.anyio

CORRECT = (Measured, Outpaced, Unstable)
"""How steady its time can be told depends on the host's other work."""
PROBLEM = """
import torch
from torch import nn
from sums import scaled


class Model(nn.Module):
    def forward(self, data, scale, is_negative, kind=None):
        return {"sum": scaled(data["x"], scale, data["eps"], is_negative), "rest": [data["x"] + data["count"]]}


def get_inputs():
    return [{"x": torch.rand(64, 64), "eps": 0.5, "count": torch.randint(0, 9, (64,))}, 3, True]


def get_init_inputs():
    return []
"""
FILES = (
    SourceFile(path="sums.py", text="def scaled(x, n, eps, negative):\n    return (-x if negative else x) * n + eps\n"),
)
BODY = 'x, n = data["x"], (-scale if is_negative else scale)\n    assert kind is None and type(scale) is int\n    '
FUNCTION = (
    "def run(data, scale, is_negative, kind=None):\n    "
    + BODY
    + 'return {"sum": x * n + data["eps"], "rest": (x + data["count"],)}\n'
)
DESTINATION = (
    "import torch\n\ndef run(data, scale, is_negative, total, rest):\n    kind = None\n    "
    + BODY
    + 'total.copy_(x * n + data["eps"])\n    torch.add(x, data["count"], out=rest)\n'
)
CPP = """#include <cstdint>
extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    const float eps = *static_cast<const double*>(inputs[1]);
    const int64_t* count = static_cast<const int64_t*>(inputs[2]);
    const float scale = *static_cast<const int64_t*>(inputs[3]);
    const bool is_negative = *static_cast<const bool*>(inputs[4]);
    float* sum = static_cast<float*>(outputs[0]);
    float* rest = static_cast<float*>(outputs[1]);
    const int64_t rows = shapes[0][0], columns = shapes[6][1];
    for (int64_t i = 0; i < rows * columns; ++i) {
        sum[i] = (is_negative ? -x[i] : x[i]) * scale + eps;
        rest[i] = x[i] + count[i % columns];
    }
    return 0;
}
"""
TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, count_ptr, sum_ptr, rest_ptr, scale, eps, elements, columns, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < elements
    x = tl.load(x_ptr + offsets, mask=mask)
    count = tl.load(count_ptr + offsets % columns, mask=mask)
    tl.store(sum_ptr + offsets, x * scale + eps, mask=mask)
    tl.store(rest_ptr + offsets, x + count.to(tl.float32), mask=mask)


def ksearch_run(x, eps, count, scale, is_negative, sum, rest):
    assert is_negative is True and type(scale) is int
    kernel[(triton.cdiv(x.numel(), 1024),)](x, count, sum, rest, -scale, eps, x.numel(), x.shape[1], BLOCK=1024)
"""


def task(calling: Calling = "function") -> TaskSpec:
    return TaskSpec(
        name="nested",
        source="own",
        text=PROBLEM,
        files=FILES,
        calling=calling,
        entry_point="run",
        rules=TaskRules(library_calls="allow"),
    )


def written(language: Language, entry_point: str) -> type:
    suffix = "cpp" if language == "cpp" else "py"

    class Written:
        def __new__(cls, text: str) -> Candidate:  # type: ignore[misc]
            file = SourceFile(path=f"kernel.{suffix}", text=text)
            return Candidate(language=language, entry_point=entry_point, files=(file,))

    return Written


@pytest.fixture(scope="module")
async def python(store: Path, builder: LocalBuilder) -> AsyncIterator[Judging]:
    evaluator = LocalEvaluator(store, slots=1, limits=Limits())
    yield Judging(builder, evaluator, probe_target("python"), written("python", "run"))
    await evaluator.aclose()


def said(verdict: Verdict) -> str:
    return verdict.reason if isinstance(verdict, Crashed | Wrong) else repr(verdict)


@pytest.mark.long
async def test_a_function_is_given_the_nests_and_returns_one(python: Judging) -> None:
    verdict = await python(FUNCTION, task())
    assert isinstance(verdict, CORRECT), verdict


@pytest.mark.long
async def test_a_function_that_ignores_a_number_is_wrong(python: Judging) -> None:
    verdict = await python(FUNCTION.replace('+ data["eps"]', ""), task())
    assert isinstance(verdict, Wrong), verdict


async def test_another_nest_than_the_reference_returns_is_wrong_and_says_which(python: Judging) -> None:
    verdict = await python(FUNCTION.replace('"rest": (', '"others": ('), task())
    assert "it returns {'sum': tensor, 'others': (tensor,)}, the reference {'sum': tensor, 'rest': [tensor]}" in said(
        verdict
    )


async def test_what_a_function_does_to_a_dict_is_gone_in_the_next_call(python: Judging) -> None:
    changed = FUNCTION.replace("    x, n", '    assert "seen" not in data\n    data["seen"] = 1\n    x, n')
    assert isinstance(await python(changed, task()), CORRECT)


async def test_a_candidate_cannot_import_the_tasks_files(python: Judging) -> None:
    verdict = await python(f"import sums\n{FUNCTION}", task())
    assert "there is no module 'sums' here" in repr(verdict)


@pytest.mark.long
async def test_a_destination_writes_to_the_outputs_behind_the_inputs(python: Judging) -> None:
    verdict = await python(DESTINATION, task("destination"))
    assert isinstance(verdict, CORRECT), verdict
    left_out = await python(DESTINATION.replace("out=rest", ""), task("destination"))
    assert isinstance(left_out, Wrong), left_out


@pytest.mark.long
async def test_numbers_are_passed_by_value_to_cpp(judge: Judging) -> None:
    verdict = await judge(CPP, task())
    assert isinstance(verdict, CORRECT), verdict


async def test_numbers_are_plain_python_numbers_in_triton(store: Path, builder: LocalBuilder) -> None:
    evaluator = LocalEvaluator(store, slots=1, limits=INTERPRETED_LIMITS)
    try:
        judge = Judging(builder, evaluator, probe_target("triton"), written("triton", "ksearch_run"))
        verdict = await judge(TRITON, task())
    finally:
        await evaluator.aclose()
    assert isinstance(verdict, CORRECT), verdict
