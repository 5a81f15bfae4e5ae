"""One step of causal attention decoding with grouped heads: several query heads share a head of keys and values.

Sequences of a batch have different lengths; a query sees the keys up to its own position.
"""

import torch
from torch import nn

SIZE = "cpu"
BATCH, HEADS, GROUPS, LENGTH, DIM = {"cpu": (4, 16, 4, 512, 64), "gpu": (64, 32, 8, 4096, 128)}[SIZE]


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


def get_inputs() -> list[torch.Tensor]:
    """Keys and queries of unit scale, positions anywhere in the sequence."""
    q = torch.randn(BATCH, HEADS, DIM)
    k = torch.randn(BATCH, GROUPS, LENGTH, DIM)
    v = torch.randn(BATCH, GROUPS, LENGTH, DIM)
    position = torch.randint(0, LENGTH, (BATCH,))
    return [q, k, v, position]


def get_init_inputs() -> list[int]:
    """Heads of queries, heads of keys and values."""
    return [HEADS, GROUPS]
