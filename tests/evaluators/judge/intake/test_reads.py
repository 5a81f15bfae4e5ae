"""How much of its inputs a task needs: rows that are gathered, a part that a mask leaves, and never less than that."""

from __future__ import annotations

import pytest

from evaluators.judge.intake.examining import Reads, bytes_read
from evaluators.judge.reference.problem import Problem
from messages.tasks import TensorSpec
from tests.evaluators.judge.kernels import task

GATHERED = ("return x[more[0]].sum(0)", "torch.randn(65536, 32), torch.randint(0, 65536, (1000,))")
MASKED_ROWS = (
    "return (x * (torch.arange(len(x))[:, None] < more[0])).sum(0)",
    "torch.randn(65536, 32), torch.randint(1000, 20000, (1,))",
)
NOT_DIFFERENTIABLE = ("return x[: more[0]].argmax(0)", "torch.randn(65536, 32), torch.randint(1000, 20000, (1,))")


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [(GATHERED, 0.01, 0.03), (MASKED_ROWS, 0.01, 0.32), (NOT_DIFFERENTIABLE, 0.01, 0.5)],
    ids=["gathered", "masked", "no gradient"],
)
def test_what_outputs_do_not_depend_on_is_not_counted(given: tuple[str, str], low: float, high: float) -> None:
    reads = Reads(Problem(task(*given)))
    assert low <= reads.least <= reads.mean <= high


@pytest.mark.parametrize("returned", ["x.relu()", "x.amax(0)", "x.argmax(0)", "x.clamp(-0.1, 0.1)"])
def test_what_has_no_gradient_but_must_be_read_counts(returned: str) -> None:
    reads = Reads(Problem(task(f"return {returned}", "torch.randn(65536, 32)")))
    assert set(reads.shares) == {1.0}


def test_outputs_and_small_inputs_count_whole() -> None:
    assert Reads(Problem(task("return x[:3]", "torch.randn(64, 32)"))).shares[0] == 1.0
    tensors = (
        TensorSpec(name="x", role="input", shape=(100,), dtype="float32"),
        TensorSpec(name="y", role="output", shape=(10,), dtype="float32"),
    )
    assert bytes_read(tensors, 0.25) == 140
