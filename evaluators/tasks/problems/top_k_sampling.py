"""Draws a token from the k most likely ones, with random numbers that are given: so there is one right answer.

Words of which k or more are more likely are left out (Fan et al. 2018, arXiv 1805.04833); the others' probabilities, in
the vocabulary's order, are laid end to end, and the random number points at one. Where it points within 1e-4 of two
words' border, either is right. Requests of a batch have different k.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"rows": 64, "vocabulary": 4096, "most": 64},
    "gpu": {"rows": 512, "vocabulary": 131072, "most": 64},
    "shapes/one": {"rows": 1, "vocabulary": 32768, "most": 50},
    "shapes/narrow": {"rows": 512, "vocabulary": 256, "most": 20},
    "shapes/odd": {"rows": 37, "vocabulary": 5001, "most": 100},
}
HIDDEN_WORKLOADS = {"held-out": {"rows": 29, "vocabulary": 3333, "most": 33}}
AS_DRAWN = ["uniform"]

_BORDER = 1e-4


class Model(nn.Module):
    """token = the first at which the sum of probabilities, of the k most likely words, exceeds the random number."""

    def forward(self, logits: torch.Tensor, k: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """logits: (rows, vocabulary) fp32; k: (rows,) int64; uniform: (rows,) fp32 in (0, 1).

        Returns tokens, (rows,) int64.
        """
        ends = _kept(logits, k).softmax(dim=-1).cumsum(dim=-1)
        return (ends <= uniform[:, None] * ends[:, -1:]).sum(dim=-1)


def _kept(logits: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return the logits, minus infinity where k or more of the row are larger."""
    largest = torch.topk(logits, int(k.max()), dim=-1).values
    return logits.masked_fill(logits < largest.gather(1, k[:, None] - 1), float("-inf"))


def check_outputs(logits: torch.Tensor, k: torch.Tensor, uniform: torch.Tensor, token: torch.Tensor) -> str:
    """Say what is wrong with tokens: each is one of those kept, and its random number points at it."""
    if not bool(((token >= 0) & (token < logits.shape[1])).all()):
        return "a token lies outside the vocabulary"
    probability = _kept(logits.double(), k).softmax(dim=-1)
    at = token[:, None]
    if bool((probability.gather(1, at) == 0).any()):
        return "a token is none of the k most likely"
    end = probability.cumsum(dim=-1).gather(1, at)[:, 0]
    begin = end - probability.gather(1, at)[:, 0]
    if bool(((uniform < begin - _BORDER) | (uniform > end + _BORDER)).any()):
        return "a random number points at another token"
    return ""


def get_inputs(rows: int, vocabulary: int, most: int) -> list[torch.Tensor]:
    """Logits of a peaked distribution, another k for each row, and random numbers a little inside their range."""
    logits = 2.0 * torch.randn(rows, vocabulary)
    return [logits, torch.randint(1, most + 1, (rows,)), 0.001 + 0.998 * torch.rand(rows)]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
