"""A linear layer with bias, GELU and a scale: a product of matrices with an epilogue."""

import torch
from torch import nn
from torch.nn import functional

SIZE = "cpu"
TOKENS, INNER, OUTER = {"cpu": (256, 256, 512), "gpu": (8192, 4096, 4096)}[SIZE]


class Model(nn.Module):
    """y = scale * gelu(x @ weight^T + bias)."""

    def __init__(self, inner: int, outer: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: (tokens, inner) fp32. Returns (tokens, outer) fp32."""
        return self.scale * functional.gelu(self.linear(x))


def get_inputs() -> list[torch.Tensor]:
    """Normalised activations."""
    return [torch.randn(TOKENS, INNER)]


def get_init_inputs() -> list[float | int]:
    """Inner and outer size, and the scale."""
    return [INNER, OUTER, 1.25]
