"""Rotary position embedding of queries and keys (Su et al. 2021, arXiv 2104.09864), halves of a head as pairs.

Element i of a head's first half and element i of its second one are a point that is turned by the token's position
times a frequency. Cosines and sines come from a table, as servers keep it; positions are in any order, as in a batch of
sequences.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"tokens": 256, "heads": 16, "groups": 4, "dim": 64, "positions": 2048},
    "gpu": {"tokens": 16384, "heads": 32, "groups": 8, "dim": 128, "positions": 32768},
    "shapes/one": {"tokens": 1, "heads": 32, "groups": 8, "dim": 128, "positions": 4096},
    "shapes/small": {"tokens": 64, "heads": 8, "groups": 1, "dim": 32, "positions": 512},
    "shapes/odd": {"tokens": 113, "heads": 5, "groups": 5, "dim": 80, "positions": 1000},
}
HIDDEN_WORKLOADS = {"held-out": {"tokens": 77, "heads": 12, "groups": 3, "dim": 96, "positions": 1500}}

BASE = 10000.0


class Model(nn.Module):
    """(a, b) becomes (a cos - b sin, b cos + a sin), for each token, head and pair of elements."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, position: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Turn queries and keys by their token's position.

        q: (tokens, heads, dim) fp32; k: (tokens, groups, dim) fp32; cosines, sines: (positions, dim / 2) fp32;
        position: (tokens,) int64. Returns both turned, in their shapes.
        """
        cos, sin = cosines[position][:, None], sines[position][:, None]
        return _turned(q, cos, sin), _turned(k, cos, sin)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def get_inputs(tokens: int, heads: int, groups: int, dim: int, positions: int) -> list[torch.Tensor]:
    """Normed queries and keys, at positions anywhere in the table."""
    q = torch.randn(tokens, heads, dim)
    k = torch.randn(tokens, groups, dim)
    frequency = BASE ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency
    position = torch.randint(0, positions, (tokens,))
    return [q, k, angle.cos().float(), angle.sin().float(), position]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
