"""Changes of the task's own floating-point inputs, one function per input distribution.

Each takes a tensor and a generator on its device, and returns a tensor of the same shape, dtype and device, within the
dtype's range. Integers are never changed, since only values that a task draws are known to be valid. Neither are
floating-point inputs that contain whole numbers only (masks, counts), except by sparse data, and by `other_constant` if
a task draws the same mask or whole numbers every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch

Distribution: TypeAlias = Callable[[torch.Tensor, torch.Generator], torch.Tensor]

_HEADROOM = 16.0
"""Ratio of the dtype's largest value to the largest value used, so that sums of a few still fit."""
_FEW_SPIKES, _ONE_IN = 64, 4096
_SPIKE_EXPONENTS = (4.0, 10.0)
"""Spikes are 2^4 to 2^10 times the root mean square, in equal steps."""
_PERTURBATION = 0.1
_TINY_EXPONENT = {torch.float64: -400, torch.float32: -50, torch.bfloat16: -50, torch.float16: -8}
"""Exponents for which products of two values are not below the dtype's smallest normal number."""
_OFFSETS = (100.0, 1000.0)
"""Distance of the mean from zero, in standard deviations."""
_OFFSET_OF_FEW_BITS = 200.0
"""The same for 16-bit numbers: there their spread is a few steps, and its exponential underflows in float32."""
_FLIPPED = 0.125
"""Share of a mask that is changed."""
_STEPS = 4.0
"""Sorted data is rounded to a quarter of its root mean square, which makes many values equal."""


def centred(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    """Shift to zero mean, which finds shortcuts that are valid for non-negative data only."""
    return tensor - tensor.mean()


def spikes(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Put a few huge values at random places, the largest of them positive; the others stay unchanged."""
    count = max(2, min(_FEW_SPIKES, tensor.numel() // _ONE_IN))
    exponents = torch.linspace(*_SPIKE_EXPONENTS, count, device=tensor.device)
    signs = _signs(count - 1, tensor, generator)
    # A place that is drawn twice keeps one of its values, which must not be at the cost of the largest.
    moved = _put(tensor, exponents[:-1].exp2() * signs * size_of(tensor), generator)
    return _put(moved, exponents[-1:].exp2() * size_of(tensor), generator)


def scaled_up(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    """Multiply by 1000, or by less if that would leave the range."""
    room = _largest(tensor) / tensor.abs().amax().float().clamp_min(1e-30)
    return (tensor * room.clamp(max=1e3).to(tensor.dtype)).contiguous()


def scaled_down(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    """Multiply by a thousandth."""
    return tensor * 1e-3


def constant(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Give every element the same value."""
    value = (0.5 + 1.5 * _uniform(1, tensor, generator)) * _signs(1, tensor, generator) * size_of(tensor)
    return value.to(tensor.dtype).squeeze(0).expand(tensor.shape).contiguous()


def peaked(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Let one element of each row dominate the row."""
    rows = (tensor * 0.01).reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
    peaks = (8.0 + 24.0 * _uniform(len(rows), tensor, generator)) * size_of(tensor)
    places = torch.randint(rows.shape[1], (len(rows), 1), generator=generator, device=tensor.device)
    return rows.scatter(1, places, _within(peaks, tensor).unsqueeze(1)).view(tensor.shape)


def tiny(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Scale towards the smallest numbers of the dtype, with a few below its smallest normal number."""
    small = tensor * 2.0 ** _TINY_EXPONENT[tensor.dtype]
    count = max(1, min(_FEW_SPIKES, tensor.numel() // _ONE_IN))
    return _put(small, _uniform(count, tensor, generator) * torch.finfo(tensor.dtype).tiny, generator)


def sorted_with_ties(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    """Sort each row, and make many of its values equal."""
    step = (size_of(tensor) / _STEPS).to(tensor.dtype)
    return ((tensor / step).round_() * step).sort(dim=-1).values if tensor.dim() else tensor


def negative(tensor: torch.Tensor, _generator: torch.Generator) -> torch.Tensor:
    """Make every value negative."""
    return -tensor.abs()


def far_above(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move the mean to 100 or 1000 standard deviations: the difference of two means of squares is lost in rounding."""
    wide = _wide(tensor)
    return _within(wide + _offset(wide, tensor, generator), tensor)


def far_below(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move the mean as far below zero, where a maximum that starts at 0 stays there."""
    wide = _wide(tensor)
    return _within(wide - _offset(wide, tensor, generator), tensor)


def sparse(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Set nine of ten elements to zero, and in arrays of several rows every eighth row."""
    kept = torch.rand(tensor.shape, generator=generator, device=tensor.device) < 0.1
    if tensor.dim() > 1:
        rows = kept.view(-1, tensor.shape[-1])
        rows[torch.rand(len(rows), generator=generator, device=tensor.device) < 0.125] = False
    return torch.where(kept, tensor, 0.0)


def zeros_and_ones(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Draw each element again, as 0 or 1."""
    return (torch.rand(tensor.shape, generator=generator, device=tensor.device) < 0.5).to(tensor.dtype)


def other_constant(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Change a tensor that is the same in every draw: some elements of a mask, or the order of its whole numbers.

    A single number, or the same one everywhere, is made larger.
    """
    if tensor.dtype == torch.bool or (tensor.numel() > 1 and is_binary(tensor)):
        flipped = torch.rand(tensor.shape, generator=generator, device=tensor.device) < _FLIPPED
        if not bool(flipped.any()):
            flipped = torch.ones_like(flipped)  # of a few elements
        return (tensor.bool() ^ flipped).to(tensor.dtype)
    order = torch.randperm(tensor.numel(), generator=generator, device=tensor.device)
    moved = tensor.flatten()[order].view(tensor.shape)
    if bool((moved != tensor).any()):
        return moved
    more = torch.randint(1, 4, (), generator=generator, device=tensor.device)
    return _within(_wide(tensor.abs() + more).copysign(tensor), tensor)


def perturbed(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Move each element by about a tenth of the tensor's root mean square (of 1 if that is 0)."""
    noise = torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)
    return tensor + noise * (_PERTURBATION * size_of(tensor)).to(tensor.dtype)


def rounded(tensor: torch.Tensor, step: float, generator: torch.Generator) -> torch.Tensor:
    """Move each element by up to half a `step` of itself, as rounding with this machine epsilon does."""
    sway = torch.rand(tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)
    return sway.sub_(0.5).mul_(step).add_(1.0).mul_(tensor)


def nearly_equal(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Change one or two elements, to values of other elements."""
    count = min(2, tensor.numel())
    moved = (2.0 + 2.0 * _uniform(count, tensor, generator)) * _signs(count, tensor, generator) * size_of(tensor)
    return _put(tensor, moved, generator)


FAR_ABOVE, FAR_BELOW = "far above zero", "far below zero"

ADVERSARIAL: Mapping[str, Distribution] = {
    "spikes": spikes,
    "scaled up": scaled_up,
    "scaled down": scaled_down,
    "constant": constant,
    "peaked rows": peaked,
    "tiny": tiny,
    "sorted with ties": sorted_with_ties,
    "all negative": negative,
    FAR_ABOVE: far_above,
    FAR_BELOW: far_below,
    "sparse": sparse,
}
WITH_TIES = frozenset({"constant", "sorted with ties", "sparse", FAR_ABOVE, FAR_BELOW})
"""Distributions with equal values, some equal only by rounding; no task defines which of them is first or largest."""


def size_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the root mean square as a float32 scalar on the tensor's device; 1 for zeros."""
    wide = tensor.dtype if tensor.dtype == torch.float64 else torch.float32
    size = torch.linalg.vector_norm(tensor, dtype=wide).float() / math.sqrt(tensor.numel())
    return torch.where(size > 0, size, 1.0)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _offset(wide: torch.Tensor, tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    mean = wide.mean()
    spread = size_of(wide - mean)
    chosen = int(torch.randint(len(_OFFSETS), (), generator=generator, device=tensor.device))
    return (_OFFSETS[chosen] if tensor.element_size() > 2 else _OFFSET_OF_FEW_BITS) * spread + mean.abs()


def is_whole(tensor: torch.Tensor) -> bool:
    """Return True if a floating-point tensor contains whole numbers only: a mask, counts."""
    return bool((tensor == tensor.round()).all())


def is_binary(tensor: torch.Tensor) -> bool:
    """Return True if a tensor contains zeros and ones only."""
    return bool(((tensor == 0) | (tensor == 1)).all())


def _largest(tensor: torch.Tensor) -> float:
    return min(torch.finfo(tensor.dtype).max, torch.finfo(torch.float32).max) / _HEADROOM


def _within(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.clamp(-_largest(like), _largest(like)).to(like.dtype)


def _put(tensor: torch.Tensor, values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    places = torch.randint(tensor.numel(), (len(values),), generator=generator, device=tensor.device)
    return tensor.reshape(-1).scatter(0, places, _within(values, tensor)).view(tensor.shape)


def _uniform(count: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(count, generator=generator, device=like.device)


def _signs(count: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return 2.0 * torch.randint(2, (count,), generator=generator, device=like.device) - 1.0
