# What the modules of this collection build on: an honest module for the task `small`.
import torch
from torch import nn


def mean_of(x):
    """The mean of rows of a power of two of elements, by elementwise operators."""
    sums = x / x.shape[-1]
    while sums.shape[-1] > 1:
        sums = sums[..., ::2] + sums[..., 1::2]
    return sums


class Honest(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def work(self, x):
        return x * self.weight / (1 + mean_of(x.abs()))


class Closed(Exception):
    """Raised by canaries whose way was closed."""
