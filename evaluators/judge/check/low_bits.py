"""Compares outputs in floats of eight bits by their distance in steps of the format.

The next value of these formats is 6 to 25 % away, so no relative tolerance fits. A right program may round a value
between two of them to the other one, if its sums are in another order or (bfloat16) coarser: depending on the distance
of values relative to a step, in 1 to 2 % of the elements. So

- no element may be more than one step off, or infinite or NaN where the reference is not, or the reverse;
- 5 % of the elements may be one step off: a program that truncates instead of rounding has half of them off, and one
  with a scale that is wrong by 1 %, about a tenth.
"""

from __future__ import annotations

import torch

LOW_BITS = frozenset((torch.float8_e4m3fn, torch.float8_e5m2))
MOST_ROUNDED_OTHERWISE = 0.05
"""Share of the elements that may be one step off."""
_SIGN, _MAGNITUDE = 0x80, 0x7F


def steps_apart(out: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the distance of two tensors of one eight-bit dtype in steps of the format, element by element.

    A NaN or infinity in only one of them is 255 steps off; two NaNs are equal, and so are 0 and -0.
    """
    apart = (_ordinal(out) - _ordinal(expected)).abs()
    one, other = out.float(), expected.float()
    is_odd = ~one.isfinite() | ~other.isfinite()
    is_same = (one == other) | (one.isnan() & other.isnan())
    return torch.where(is_odd, torch.where(is_same, 0, 255), apart)


def wrong_steps(apart: torch.Tensor, share: float = MOST_ROUNDED_OTHERWISE) -> torch.Tensor:
    """Return a mask of the wrong elements, given their distances in steps."""
    is_off = apart > 0
    return is_off if int(is_off.sum()) > max(1.0, share * apart.numel()) else apart > 1


def in_full(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of eight bits in float32, which holds all its values; others as they are."""
    return tensor.float() if tensor.dtype in LOW_BITS else tensor


def _ordinal(tensor: torch.Tensor) -> torch.Tensor:
    bits = tensor.contiguous().view(torch.uint8).int()
    return torch.where((bits & _SIGN) > 0, -(bits & _MAGNITUDE), bits & _MAGNITUDE)
