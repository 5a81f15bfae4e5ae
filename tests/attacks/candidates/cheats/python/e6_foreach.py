# class: E1,E6
# mechanism: elementwise operators for lists of tensors
# expect: rejected
# task: silu

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch._foreach_div([x], torch._foreach_add(torch._foreach_exp(torch._foreach_neg([x])), 1.0))[0]
