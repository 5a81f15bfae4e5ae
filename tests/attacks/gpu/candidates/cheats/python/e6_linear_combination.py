# class: E1,E6
# mechanism: a product of matrices as linear combinations that the matrix exponential is made of
# expect: rejected
# task: product

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, weight):
        return torch.ops.aten._compute_linear_combination(weight, x)
