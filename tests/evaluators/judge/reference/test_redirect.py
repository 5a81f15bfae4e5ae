"""A GPU that a problem names is the CPU, for as long as it is redirected."""

from __future__ import annotations

import torch

from evaluators.judge.reference.problem import redirected


def test_what_is_made_on_a_gpu_lies_on_the_cpu() -> None:
    with redirected("cpu"):
        x = torch.ones(3, device="cuda")
        moved = (x.cuda(), x.to("cuda:0"), torch.zeros(2, device=torch.device("cuda")), torch.tensor([1], device=0))
        drawn = torch.randn(2, generator=torch.Generator(device="cuda").manual_seed(1), device="cuda")
        layer = torch.nn.Linear(3, 2).cuda()
        assert all(str(tensor.device) == "cpu" for tensor in (x, *moved, drawn, layer(x)))
        assert x.is_cuda
        assert torch.cuda.is_available()
        torch.cuda.synchronize()


def test_nothing_of_it_is_left_behind() -> None:
    before = (torch.cuda.is_available, torch.Generator, vars(torch._C).get("_cuda_getCurrentRawStream"))
    with redirected("cpu"), redirected("cpu"):
        assert torch.Generator is not before[1]
    assert (torch.cuda.is_available, torch.Generator, vars(torch._C).get("_cuda_getCurrentRawStream")) == before
    assert not torch.ones(1).is_cuda


def test_on_a_gpu_nothing_is_redirected() -> None:
    with redirected("cuda:0"):
        assert torch.Generator.__module__.startswith("torch")
        assert not torch.ones(1).is_cuda
