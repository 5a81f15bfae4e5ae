"""Softmax over rows, as over the vocabulary or over attention scores."""

import torch
from torch import nn

SIZE = "cpu"
ROWS, COLUMNS = {"cpu": (2048, 1024), "gpu": (16384, 8192)}[SIZE]


class Model(nn.Module):
    """y = exp(x - max(x)) / sum(exp(x - max(x))), over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, columns) fp32. Returns (rows, columns) fp32."""
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    """Logits of a spread at which a few columns of each row dominate."""
    return [3.0 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
