"""RMSNorm with a learned weight, times SiLU of a gate: what follows a gated linear-attention block."""

import torch
from torch import nn
from torch.nn import functional

WORKLOADS = {
    "cpu": {"rows": 1024, "hidden": 2048},
    "gpu": {"rows": 32768, "hidden": 8192},
    "shapes/short": {"rows": 256, "hidden": 1024},
    "shapes/wide": {"rows": 128, "hidden": 8192},
    "shapes/odd": {"rows": 997, "hidden": 1537},
    "shapes/long": {"rows": 2048, "hidden": 2048},
}
HIDDEN_WORKLOADS = {"held-out": {"rows": 613, "hidden": 2304}}


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


def get_inputs(rows: int, hidden: int) -> list[torch.Tensor]:
    """Activations of about unit scale, a little off centre, as they are inside a network."""
    x = torch.randn(rows, hidden) + 0.1
    gate = 1.5 * torch.randn(rows, hidden)
    return [x, gate]


def get_init_inputs(hidden: int) -> list[float | int]:
    """Hidden size and epsilon."""
    return [hidden, 1e-6]
