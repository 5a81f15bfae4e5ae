"""What is counted of a reference's arithmetic."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evaluators.judge.reference.operators import count_flops
from evaluators.judge.reference.problem import Problem
from messages.tasks import TaskSpec

_FORM = """
import torch
import torch.nn.functional as F


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(64, 32))

    def forward(self, x):
        return {work}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""


def flops(work: str, shape: str) -> int:
    return count_flops(Problem(TaskSpec(name="t", source="kernelbench", text=_FORM.format(work=work, shape=shape))))


@pytest.mark.parametrize(
    ("work", "shape", "expected"),
    [
        ("x @ self.w", "16, 64", 2 * 16 * 64 * 32),
        ("torch.einsum('bi,ij->bj', x, self.w)", "16, 64", 2 * 16 * 64 * 32),
        ("F.scaled_dot_product_attention(x, x, x) + self.w.sum()", "2, 3, 16, 8", 2 * 3 * (2 * 2 * 16 * 16 * 8)),
        ("x * 2 + self.w.sum()", "16, 64", 0),
    ],
)
def test_products_and_attentions_are_counted_and_elementwise_work_is_not(work: str, shape: str, expected: int) -> None:
    assert flops(work, shape) == expected


def test_a_reference_that_the_counter_cannot_follow_is_unknown_and_no_error() -> None:
    assert flops("torch.ones(x.shape) * (x.shape[0] // len(x.tolist())) + self.w.sum()", "4, 4") == 0


def test_counting_and_recording_leave_the_compiler_of_torch_alone() -> None:
    """Importing it takes two seconds, in each judge."""
    text = f"""
import sys
from evaluators.judge.reference.operators import count_flops
from evaluators.judge.reference.operators import denied_to_candidates
from evaluators.judge.reference.problem import Problem
from messages.tasks import TaskRules, TaskSpec

problem = Problem(TaskSpec(name="t", source="kernelbench", text={_FORM.format(work="x @ self.w", shape="16, 64")!r}))
assert count_flops(problem) and denied_to_candidates(problem, TaskRules())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", text], check=False, timeout=120).returncode == 0
