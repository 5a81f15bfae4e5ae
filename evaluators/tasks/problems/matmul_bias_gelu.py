"""A linear layer with bias, GELU and a scale: a product of matrices with an epilogue."""

import torch
from torch import nn
from torch.nn import functional

WORKLOADS = {
    "cpu": {"tokens": 256, "inner": 256, "outer": 512},
    "gpu": {"tokens": 8192, "inner": 4096, "outer": 4096},
}


class Model(nn.Module):
    """y = scale * gelu(x @ weight^T + bias)."""

    def __init__(self, inner: int, outer: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (tokens, inner) fp32. Returns (tokens, outer) fp32."""
        return self.scale * functional.gelu(self.linear(x))


def get_inputs(tokens: int, inner: int) -> list[torch.Tensor]:
    """Normalised activations."""
    return [torch.randn(tokens, inner)]


def get_init_inputs(inner: int, outer: int) -> list[float | int]:
    """Inner and outer size, and the scale."""
    return [inner, outer, 1.25]
