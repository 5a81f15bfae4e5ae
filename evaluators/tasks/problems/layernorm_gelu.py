"""LayerNorm with learned scale and shift, then GELU: the entry of many feed-forward blocks."""

import torch
from torch import nn
from torch.nn import functional

WORKLOADS = {
    "cpu": {"rows": 1024, "hidden": 2048},
    "gpu": {"rows": 32768, "hidden": 4096},
}


class Model(nn.Module):
    """y = gelu(layer_norm(x) * weight + bias), the statistics over the last dimension."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.norm.weight, mean=1.0, std=0.2)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (rows, hidden) fp32. Returns (rows, hidden) fp32."""
        return functional.gelu(self.norm(x))


def get_inputs(rows: int, hidden: int) -> list[torch.Tensor]:
    """A residual stream: rows of about unit scale with an offset."""
    return [1.5 * torch.randn(rows, hidden) + 0.3]


def get_init_inputs(hidden: int) -> list[int]:
    """Hidden size."""
    return [hidden]
