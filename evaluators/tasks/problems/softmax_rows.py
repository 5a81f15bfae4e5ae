"""Softmax over rows, as over the vocabulary or over attention scores."""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"rows": 2048, "columns": 1024},
    "gpu": {"rows": 16384, "columns": 8192},
}


class Model(nn.Module):
    """y = exp(x - max(x)) / sum(exp(x - max(x))), over the last dimension."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, columns) fp32. Returns (rows, columns) fp32."""
        return torch.softmax(x, dim=-1)


def get_inputs(rows: int, columns: int) -> list[torch.Tensor]:
    """Logits of a spread at which a few columns of each row dominate."""
    return [3.0 * torch.randn(rows, columns)]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
