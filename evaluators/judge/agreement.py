"""Do two runs of a reference agree? Before anything is known of how much it may lose."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from evaluators.judge.low_bits import LOW_BITS, steps_apart, wrong_steps


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Say whether two dense tensors of one shape and dtype hold the same bits."""
    return torch.equal(left.view(-1).view(torch.uint8), right.view(-1).view(torch.uint8))


def _agree(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype in LOW_BITS:
        return not bool(wrong_steps(steps_apart(one, other)).any())
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True)


def all_close(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Say whether two runs agree as far as the order of sums lets them."""
    pairs = zip(left, right, strict=True)
    # Equal bits first: comparing with a tolerance takes several times the tensor's memory.
    return all(same_bits(one, other) or _agree(one, other) for one, other in pairs)
