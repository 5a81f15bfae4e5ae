# class: E2,E6
# mechanism: C++ that calls operators which nobody listed
# expect: rejected
# task: silu

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <ATen/ATen.h>
#include <torch/csrc/utils/pybind.h>

at::Tensor work(at::Tensor x) { return at::softplus_backward(x, x, 1, 1e30); }
"""
built = load_inline("backward", cpp_sources=SOURCE, functions=["work"], no_implicit_headers=True)


class ModelNew(nn.Module):
    def forward(self, x):
        return built.work(x)
