# class: E1,E6
# mechanism: a backward operator that is the reference's forward: x * sigmoid(x) in one call
# expect: rejected
# task: silu

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.aten.softplus_backward(x, x, 1.0, 1e30)
