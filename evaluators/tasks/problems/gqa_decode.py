"""One step of causal attention decoding with grouped heads: several query heads share a head of keys and values.

Sequences of a batch have different lengths; a query sees the keys up to its own position.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"batch": 4, "heads": 16, "groups": 4, "length": 512, "dim": 64},
    "gpu": {"batch": 64, "heads": 32, "groups": 8, "length": 4096, "dim": 128},
}


class Model(nn.Module):
    """y = softmax(q k^T / sqrt(dim), keys after the query's position left out) v, for one query per head."""

    def __init__(self, heads: int, groups: int) -> None:
        super().__init__()
        self.repeats = heads // groups

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Attend with the last token of each sequence.

        q: (batch, heads, dim) fp32; k, v: (batch, groups, length, dim) fp32; position: (batch,) int64, where each
        query stands in its sequence. Returns (batch, heads, dim) fp32.
        """
        k = k.repeat_interleave(self.repeats, dim=1)
        v = v.repeat_interleave(self.repeats, dim=1)
        scores = torch.einsum("bhd,bhnd->bhn", q, k) * q.shape[-1] ** -0.5
        future = torch.arange(k.shape[2], device=k.device) > position[:, None, None]
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return torch.einsum("bhn,bhnd->bhd", weights, v)


def get_inputs(batch: int, heads: int, groups: int, length: int, dim: int) -> list[torch.Tensor]:
    """Keys and queries of unit scale, positions anywhere in the sequence."""
    q = torch.randn(batch, heads, dim)
    k = torch.randn(batch, groups, length, dim)
    v = torch.randn(batch, groups, length, dim)
    position = torch.randint(0, length, (batch,))
    return [q, k, v, position]


def get_init_inputs(heads: int, groups: int) -> list[int]:
    """Heads of queries, heads of keys and values."""
    return [heads, groups]
