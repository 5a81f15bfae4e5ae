"""What inputs are made of. This file travels with each task, under this name: it imports torch and nothing of ours.

Integers that say where things lie are drawn so that they are valid, and so that how much there is to do is the same in
every draw: lengths of sequences are a fixed partition of their sum, of which a draw changes the order alone.
"""

from __future__ import annotations

import base64
import random
import sys
import zlib
from collections.abc import Sequence

import torch

_LOW_BITS = (torch.float8_e4m3fn, torch.float8_e5m2)
_PIECE = 1 << 26
_SHARPNESS = (1.0, 1.0, 1.0, 2.0, 4.0, 8.0)
_WHOLE = 0.25
_SCALE_BYTES = 4


def normal(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Draw from N(0, 1); of eight bits cut off at -2 and 2, as upstream does."""
    if dtype not in _LOW_BITS:
        return torch.randn(shape, dtype=dtype)
    drawn = torch.empty(shape, dtype=dtype)
    flat = drawn.view(-1)
    # In pieces: in float32 the whole would be four times as large.
    for begin in range(0, flat.numel(), _PIECE):
        piece = flat[begin : begin + _PIECE]
        piece.copy_(torch.randn(piece.shape).clamp_(-2.0, 2.0))
    return drawn


def probabilities(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Draw rows that are positive and add up to 1: softmax of N(0, 1), as upstream, of every other row on average.

    The others are sharper, by a factor of 2, 4 or 8: as a language model's are, from some hundred likely tokens to one.
    Where all of 100,000 tokens are about as likely, few draws tell little.
    """
    drawn = torch.randn(shape, dtype=dtype)
    factors = torch.tensor(_SHARPNESS, dtype=dtype)[torch.randint(len(_SHARPNESS), (*shape[:-1], 1))]
    return (drawn * factors).softmax(dim=-1)


def parts(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Draw parts of a whole between 0 and 1, rather large ones, and 1 itself one time in four."""
    drawn = 1.0 - torch.rand(shape, dtype=dtype).square()
    return torch.where(torch.rand(shape) < _WHOLE, torch.ones_like(drawn), drawn)


def sizes(shape: Sequence[int], low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    """Draw integers from `low` to `high`, both included: large ones rather, but of all orders of magnitude."""
    ratio = torch.rand(shape, dtype=torch.float64).sqrt()
    drawn = low * ((high + 1) / low) ** ratio
    return drawn.floor().clamp(low, high).to(dtype)


def packed_keys(shape: Sequence[int]) -> torch.Tensor:
    """Draw pages of keys in eight bits with a scale each, as bytes: first all keys of a page, then their scales.

    Args:
        shape: (pages, keys, 1, bytes of a key and of its scale in float32).
    """
    pages, keys, heads, width = shape
    drawn = normal((pages, keys * heads * (width - _SCALE_BYTES)), torch.float8_e4m3fn).view(torch.uint8)
    scales = (torch.rand(pages, keys * heads, dtype=torch.float32) + 0.5).view(torch.uint8)
    return torch.cat((drawn, scales), dim=1).reshape(tuple(shape)).view(torch.int8)


def coins(shape: Sequence[int]) -> torch.Tensor:
    """Draw booleans."""
    return torch.randint(0, 2, shape, dtype=torch.bool)


def whole(shape: Sequence[int], low: int, high: int, dtype: torch.dtype) -> torch.Tensor:
    """Draw integers from `low` to `high`, both included."""
    return torch.randint(low, high + 1, shape, dtype=dtype)


def distinct(shape: Sequence[int], below: int, dtype: torch.dtype) -> torch.Tensor:
    """Draw integers below a number, different from each other in each row; where there are too few, repeated."""
    *rows, width = shape
    count = 1
    for size in rows:
        count *= size
    drawn = [torch.cat([torch.randperm(below) for _ in range(-(-width // below))])[:width] for _ in range(count)]
    return torch.stack(drawn).reshape(tuple(shape)).to(dtype)


def shuffled(count: int) -> list[int]:
    """Draw an order of so many sequences."""
    return torch.randperm(count, device="cpu").tolist()


def lengths(total: int, count: int, least: Sequence[int] | None = None) -> list[int]:
    """Cut a total into so many parts, always the same: uneven, each at least 1, or what is asked for, if that fits."""
    floor = list(least) if least is not None and sum(least) <= total else [int(total >= count)] * count
    spare = total - sum(floor)
    chance = random.Random(f"{total} {count}")
    cuts = sorted(chance.randint(0, spare) for _ in range(count - 1))
    parts = [right - left for left, right in zip((0, *cuts), (*cuts, spare), strict=True)]
    return [one + more for one, more in zip(floor, parts, strict=True)]


def offsets(parts: Sequence[int], order: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return where each part begins, and the end, with the parts in an order."""
    ends = [0]
    for place in order:
        ends.append(ends[-1] + parts[place])
    return torch.tensor(ends, dtype=dtype)


def recorded(words: tuple[str, tuple[int, ...], str]) -> torch.Tensor:
    """Return a tensor that was recorded: dtype, shape, and its bytes, packed by zlib, in base 85."""
    dtype, shape, packed = words
    content = bytearray(zlib.decompress(base64.b85decode(packed)))
    if sys.byteorder != "little":
        raise RuntimeError("recorded tensors are read on little-endian machines only")
    flat = torch.frombuffer(content, dtype=getattr(torch, dtype)) if content else torch.empty(0)
    return flat.reshape(shape).to(torch.get_default_device())
