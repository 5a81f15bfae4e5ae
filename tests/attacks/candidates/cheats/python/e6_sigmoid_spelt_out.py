# class: E1,E6
# mechanism: the activation by several elementwise operators, where elementwise work is the task
# expect: rejected
# task: silu

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x / (1 + torch.exp(-x))
