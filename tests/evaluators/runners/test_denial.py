"""Kernels are replaced before runners are forked, and brought back for a task that denies others."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from evaluators.runners.base import LIBRARY_CALL, NUMPY, UNNAMED
from evaluators.runners.denial import Denial, LibraryCallError

DENIED = ("aten::_foreach_mul", "aten::softplus_backward")


@pytest.fixture(name="denial")
def make_denial() -> Iterator[Denial]:
    denial = Denial(DENIED)
    yield denial
    denial.undo()


def test_a_denied_operator_raises_and_the_call_is_remembered(denial: Denial) -> None:
    x = torch.ones(2)
    with pytest.raises(LibraryCallError, match=r"softplus_backward may not be called.*only these may be called"):
        torch.ops.aten.softplus_backward(x, x, 1.0, 20.0)
    with pytest.raises(LibraryCallError, match="_foreach_mul"):
        torch._foreach_mul_([x], 2.0)
    assert denial.status(0) == LIBRARY_CALL + 1


def test_products_of_numpy_are_not_computed_and_remembered(denial: Denial) -> None:
    ones = np.ones((2, 2), dtype=np.float32)
    product = np.zeros((2, 2), dtype=np.float32)
    np.matmul(ones, ones, out=product)
    assert not product.any()
    assert denial.status(0) == LIBRARY_CALL + len(DENIED) + UNNAMED.index(NUMPY)


def test_what_is_undone_computes_again(denial: Denial) -> None:
    denial.undo()
    x, ones = torch.ones(2), np.ones((2, 2))
    assert torch._foreach_mul([x], 2.0)[0].tolist() == [2.0, 2.0]
    assert (ones @ ones).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert denial.status(0) == 0


def test_nothing_is_replaced_where_nothing_is_denied() -> None:
    ones = np.ones((2, 2))
    denial = Denial()
    denial.keep()
    assert (ones @ ones).tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert denial.status(5) == 5
