"""RMSNorm with a learned weight, times SiLU of a gate: what follows a gated linear-attention block."""

import torch
from torch import nn
from torch.nn import functional

SIZE = "cpu"
ROWS, HIDDEN = {"cpu": (1024, 2048), "gpu": (32768, 8192)}[SIZE]


class Model(nn.Module):
    """y = x / sqrt(mean(x^2) + eps) * weight * silu(gate), the mean over the last dimension."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(1.0 + 0.2 * torch.randn(hidden))

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """x, gate: (rows, hidden) fp32. Returns (rows, hidden) fp32."""
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        normed = x * torch.rsqrt(mean_square + self.eps) * self.weight
        return normed * functional.silu(gate)


def get_inputs() -> list[torch.Tensor]:
    """Activations of about unit scale, a little off centre, as they are inside a network."""
    x = torch.randn(ROWS, HIDDEN) + 0.1
    gate = 1.5 * torch.randn(ROWS, HIDDEN)
    return [x, gate]


def get_init_inputs() -> list[float | int]:
    """Hidden size and epsilon."""
    return [HIDDEN, 1e-6]
