"""Modules for the small task of `tests/evaluators/words.py`, right and wrong in many ways."""

from __future__ import annotations

from messages.tasks import Candidate, SourceFile

RIGHT = """
import torch
from torch import nn

kept = []


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        # made

    def forward(self, x):
        # before
        mean = x.abs() / x.shape[1]
        while mean.shape[1] > 1:
            mean = mean[:, ::2] + mean[:, 1::2]
        y = x * self.weight / (1 + mean)
        # after
        return y
"""
"""The mean by elementwise operators, for a power of two of columns."""


def module(text: str = RIGHT) -> Candidate:
    return Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="main.py", text=text),))


def before(*lines: str) -> str:
    """The right module, with statements before its work."""
    return RIGHT.replace("# before", "\n        ".join(lines))


def after(*lines: str) -> str:
    """The right module, with statements behind its work."""
    return RIGHT.replace("# after", "\n        ".join(lines))


def made(*lines: str) -> str:
    """The right module, with statements at the end of its `__init__`."""
    return RIGHT.replace("# made", "\n        ".join(lines))
