"""The competition's task in our form: both forms of it are problems that a judge takes."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace

from evaluators.judge.reference.problem import Problem
from tests.gpu.trimul import SHAPES, Shape, task_of, task_of_all

SMALL = (
    Shape(seqlen=16, bs=2, dim=8, seed=1, nomask=True, distribution="normal"),
    Shape(seqlen=24, bs=1, dim=12, seed=1, nomask=False, distribution="cauchy"),
)


@pytest.mark.parametrize("shape", SMALL)
def test_a_shape_by_itself_and_as_a_workload_is_the_same_problem(shape: Shape) -> None:
    together = task_of_all(SMALL)
    workload = next(one for one in together.workloads if one.dimensions["seqlen"] == shape.seqlen)
    alone, among = Problem(task_of(shape)), Problem(together, workload=workload)
    assert alone.tensors == among.tensors
    assert alone.state_names == among.state_names
    one, other = alone.inputs(seed=5), among.inputs(seed=5)
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))
    mask = one[1]
    assert bool((mask == 1).all()) == shape.nomask


def test_the_competitions_masks_are_all_ones() -> None:
    assert bool((Problem(task_of(SMALL[1], masks=False)).inputs(seed=5)[1] == 1).all())
    assert len(task_of_all(SHAPES).workloads) == len(SHAPES)
    assert replace(SHAPES[0], seqlen=1).line.startswith("seqlen: 1; bs: 2;")
