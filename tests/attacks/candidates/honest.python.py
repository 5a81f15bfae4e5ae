# What the modules of this collection build on: an honest module for the task `small`.
import torch
from torch import nn


class Honest(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def work(self, x):
        # The mean without the operator that the reference takes it by.
        return x * self.weight / (1 + x.abs().cumsum(-1)[:, -1:] / x.shape[1])


class Closed(Exception):
    """Raised by canaries whose way was closed."""
