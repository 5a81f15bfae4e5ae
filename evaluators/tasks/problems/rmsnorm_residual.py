"""Adds a block's output to the residual stream and norms the sum: what stands between any two blocks of a decoder.

RMSNorm is that of Zhang and Sennrich 2019 (arXiv 1910.07467). The sum is needed again, so both are returned.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"rows": 512, "hidden": 1024},
    "gpu": {"rows": 16384, "hidden": 4096},
    "shapes/one": {"rows": 1, "hidden": 4096},
    "shapes/wide": {"rows": 64, "hidden": 7168},
    "shapes/odd": {"rows": 331, "hidden": 1111},
}
HIDDEN_WORKLOADS = {"held-out": {"rows": 217, "hidden": 1536}}


class Model(nn.Module):
    """s = x + residual; y = s / sqrt(mean(s^2) + eps) * weight, the mean over the last dimension."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter((1.0 + 0.2 * torch.randn(hidden)).bfloat16())

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x, residual: (rows, hidden) bf16; computed in fp32. Returns y and s, both (rows, hidden) bf16."""
        wide = torch.promote_types(x.dtype, torch.float32)
        total = x.to(wide) + residual.to(wide)
        normed = total * torch.rsqrt(total.square().mean(dim=-1, keepdim=True) + self.eps) * self.weight.to(wide)
        return normed.to(x.dtype), total.to(x.dtype)


def get_inputs(rows: int, hidden: int) -> list[torch.Tensor]:
    """A block's output, and a stream that has grown larger than it, as it does with depth."""
    return [torch.randn(rows, hidden).bfloat16(), (2.0 * torch.randn(rows, hidden)).bfloat16()]


def get_init_inputs(hidden: int) -> list[float | int]:
    """Hidden size and epsilon."""
    return [hidden, 1e-5]
