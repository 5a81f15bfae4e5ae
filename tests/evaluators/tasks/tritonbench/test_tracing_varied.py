"""Values that a test writes out are varied, and stay what they are."""

from __future__ import annotations

import torch

from evaluators.tasks.tritonbench.tracing import Call, varied


def call(*arguments: torch.Tensor) -> Call:
    return {"function": "f", "arguments": arguments, "options": {}, "writes": (), "unwritten": [], "seed": None}


def test_a_symmetric_matrix_stays_symmetric_and_each_value_is_smaller_by_up_to_a_tenth() -> None:
    torch.manual_seed(0)
    matrix = torch.tensor([[4.0, 1.0, 2.0], [1.0, 5.0, 3.0], [2.0, 3.0, 6.0]])
    kept = torch.ones(3)
    (found,) = varied([call(matrix, kept)], frozenset((0,)))
    changed, same = found["arguments"]
    assert torch.equal(changed, changed.mT)
    assert bool(((changed <= matrix) & (changed >= 0.9 * matrix)).all())
    assert not torch.equal(changed, matrix)
    assert torch.equal(same, kept)
