"""A module that returns memory that an earlier result lies in is found out, however many tensors take turns."""

from __future__ import annotations

import pytest
import torch

from evaluators.runners.module_call import Results


@pytest.mark.parametrize("count", [1, 2, 3, 5, 40])
def test_tensors_that_are_handed_out_in_turn_are_found_out_when_the_first_comes_again(count: int) -> None:
    own, results = [torch.zeros(1000) for _ in range(count)], Results([])
    seen = []
    for call in range(count + 1):
        result = own[call % count]
        result.fill_(call + 1)
        seen.append(results.see([result.view(10, 100)]))
    assert seen == [False] * count + [True]


def test_new_memory_for_each_call_is_no_reuse_though_the_allocator_gives_the_same_address() -> None:
    results = Results([])
    assert not any(results.see([torch.full((1000,), float(call))]) for call in range(50))


def test_the_same_contents_again_and_tensors_of_the_caller_are_no_reuse() -> None:
    given, constant = torch.zeros(1000), torch.ones(1000)
    results = Results([given])
    for call in range(5):
        given.fill_(call)
        assert not results.see([constant, given])


def test_two_results_in_one_memory_are_no_reuse_in_the_same_call() -> None:
    own, results = torch.rand(2, 1000), Results([])
    assert not results.see([own[0], own[1], own])
    own += 1
    assert results.see([own[1]])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_every_dtype_is_looked_at(dtype: torch.dtype) -> None:
    own, results = torch.zeros(300, dtype=dtype), Results([])
    assert not results.see([own])
    own.view(torch.uint8).fill_(1)
    assert results.see([own, torch.empty(0), torch.tensor(3.0)])
