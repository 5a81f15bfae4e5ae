"""Compares an output with the expected one, and says what wrong places have in common.

The tolerance is relative to what the eager reference itself loses: an output element is right if

    |out - ref64| <= rtol * |ref64| + max(k * e32, c * eps) * scale

where ref64 is the reference in float64, `e32` the largest error of the reference in the task's own dtype relative to
`scale`, eps the dtype's, and `scale` the largest |ref64| of the element's row (the last dimension; the whole tensor if
that is shorter than 16). So near-zero rows need near-zero errors, and one that computes fp32 sums in bf16 is wrong.
Infinities and NaNs must be the same and in the same places; integers and booleans exact.
"""

from __future__ import annotations

import torch

from evaluators.judge.arena import is_poison
from messages.tasks import Tolerance

K_REFERENCE_ERRORS = 16.0
C_ROUNDINGS = 4.0
RTOL = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
_SHORT_ROW = 16
_FLOOR_OF_SCALE = 2.0**-10
"""A row is never held to less than this part of the largest value anywhere: rows of nothing but cancellation exist."""
_BLOCK_ELEMENTS = 1 << 21
"""Elements compared at once: bounds the memory that comparing takes."""


class Allowed:
    """How far one output may lie from the expected one."""

    def __init__(self, expected: torch.Tensor, native: torch.Tensor, tolerance: Tolerance) -> None:
        """Work it out.

        Args:
            expected: the reference in float64 (or in its own dtype where it has no float64 form).
            native: the reference in the task's own dtype.
            tolerance: what the task itself says; null fields follow the dtype.
        """
        self.dtype = native.dtype
        self.exact = not native.dtype.is_floating_point
        if self.exact:
            return
        rows = as_rows(expected)
        scale = _scale_of(rows)
        error = _largest_error(as_rows(native), rows, scale)
        eps = torch.finfo(native.dtype).eps
        self.rtol = RTOL[native.dtype] if tolerance.rtol is None else tolerance.rtol
        relative = max(K_REFERENCE_ERRORS * error, C_ROUNDINGS * eps)
        self.atol = scale * relative if tolerance.atol is None else torch.full_like(scale, tolerance.atol)

    def errors(self, out: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, float, float]:
        """Return a mask of wrong elements, the largest absolute error and the largest error over what is allowed."""
        if self.exact:
            wrong = out != expected if out.dtype != torch.bool else out.view(torch.uint8) != expected.view(torch.uint8)
            difference = (out.double() - expected.double()).abs().max().item() if bool(wrong.any()) else 0.0
            return wrong, difference, float("inf") if difference else 0.0
        wrong = torch.zeros(out.shape, dtype=torch.bool).view(as_rows(out).shape)
        worst = ratio = 0.0
        for span, block, reference in _blocks(as_rows(out), as_rows(expected)):
            bound = reference.abs().mul_(self.rtol).add_(self.atol[span].to(reference.dtype))
            error = (block.to(reference.dtype) - reference).abs_()
            finite = reference.isfinite() & block.isfinite()
            same = (block == reference) | (block.isnan() & reference.isnan())
            wrong[span] = torch.where(finite, ~(error <= bound), ~same)
            error = torch.where(finite, error, 0.0)
            worst = max(worst, error.max().item())
            ratio = max(ratio, (error / bound.clamp_min(1e-300)).nan_to_num(0.0).max().item())
        return wrong.view(out.shape), worst, ratio

    def accepts_beside(self, out: torch.Tensor, eager: torch.Tensor) -> bool:
        """Say whether an output agrees with the eager output for the same inputs: the cheap check of a timed call.

        Both may lie off the truth, so the absolute part counts twice. Scales are those of the inputs that this was
        worked out from; they must come from the same generator.
        """
        if self.exact:
            return torch.equal(out.view(-1).view(torch.uint8), eager.view(-1).view(torch.uint8))
        atol = float(self.atol.max()) * 2.0
        for _, block, reference in _blocks(as_rows(out), as_rows(eager)):
            # Finite also where the reference is not: there, values are compared.
            bound = reference.abs().mul_(2.0 * self.rtol).add_(atol).clamp_(max=torch.finfo(reference.dtype).max)
            if not bool(((block - reference).abs_() <= bound).all()) and not _same_where_infinite(
                block, reference, bound
            ):
                return False
        return True


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a two-dimensional view: what is scaled together is a row."""
    if tensor.dim() == 0 or tensor.shape[-1] < _SHORT_ROW:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def _same_where_infinite(block: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor) -> bool:
    finite = reference.isfinite() & block.isfinite()
    same = (block == reference) | (block.isnan() & reference.isnan())
    return bool(torch.where(finite, (block - reference).abs() <= bound, same).all())


def _scale_of(rows: torch.Tensor) -> torch.Tensor:
    """Return each row's scale as a column, in float64."""
    largest = torch.where(rows.isfinite(), rows, 0.0).abs().amax(dim=1, keepdim=True).double()
    return largest.clamp_min(max(largest.max().item() * _FLOOR_OF_SCALE, 1e-300))


def _largest_error(native: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor) -> float:
    worst = 0.0
    for span, block, reference in _blocks(native, expected):
        error = (block.to(reference.dtype) - reference).abs_().nan_to_num_(0.0, 0.0, 0.0)
        worst = max(worst, (error / scale[span]).max().item())
    return worst


def _blocks(left: torch.Tensor, right: torch.Tensor) -> list[tuple[slice, torch.Tensor, torch.Tensor]]:
    """Cut two equal matrices into blocks of rows."""
    rows, columns = left.shape
    step = max(1, _BLOCK_ELEMENTS // max(columns, 1))
    spans = [slice(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
    return [(span, left[span], right[span]) for span in spans]


def describe_wrong(out: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> tuple[str, ...]:
    """Say what the wrong places have in common, most telling first."""
    untouched = is_poison(out) & wrong
    found: list[str] = []
    if bool(untouched.any()):
        count = int(untouched.sum())
        found.append(f"unwritten: {count} of {out.numel()} elements were never written")
    if out.is_floating_point() and bool((out.isnan() & ~expected.isnan() & ~untouched).any()):
        found.append("NaN where the reference has none")
    rows = out.reshape(-1, out.shape[-1]) if out.dim() else out.reshape(1, 1)
    mask = wrong.reshape(rows.shape)
    found.extend(_where(mask))
    if not bool(untouched.any()):
        found.extend(_how(rows.double(), expected.reshape(rows.shape).double(), mask))
    return tuple(found)


def _where(mask: torch.Tensor) -> list[str]:
    """Say in which rows and columns wrong elements lie, if that tells something."""
    rows, columns = mask.shape
    in_rows, in_columns = mask.any(dim=1), mask.any(dim=0)
    found: list[str] = []
    first_column = int(in_columns.int().argmax())
    if first_column > 0 and bool(mask[in_rows][:, first_column:].all()):
        found.append(f"tail columns: only columns {first_column} to {columns - 1} of {columns} are wrong")
    elif rows > 1 and not bool(in_rows.all()) and bool(mask[in_rows].all()):
        which = in_rows.nonzero().flatten()
        found.append(f"whole rows: {len(which)} of {rows} rows are wrong, {int(which[0])} to {int(which[-1])}")
    elif bool(mask.all()):
        found.append("every element is wrong")
    return found


def _how(out: torch.Tensor, expected: torch.Tensor, mask: torch.Tensor) -> list[str]:
    """Say how values relate to the expected ones."""
    found: list[str] = []
    usable = mask & expected.isfinite() & out.isfinite() & (expected.abs() > 1e-3 * expected.abs().nan_to_num().max())
    if int(usable.sum()) >= 8:
        ratios = out[usable] / expected[usable]
        middle = ratios.median()
        if bool(((ratios - middle).abs() <= 1e-3 * middle.abs()).all()) and abs(float(middle) - 1.0) > 1e-3:
            found.append(f"constant factor: the output is {float(middle):.6g} times the expected one")
    if len(out) > 2 and bool(mask.any()):
        for shift, word in ((1, "late"), (-1, "early")):
            moved = torch.roll(expected, shift, dims=0)[1:-1]
            if torch.allclose(out[1:-1], moved, rtol=1e-3, atol=1e-6, equal_nan=True):
                found.append(f"off by one row: each row is one row {word}")
    if out.shape[0] == out.shape[1] and out.shape[0] > 1 and torch.allclose(out, expected.T, rtol=1e-3, atol=1e-6):
        found.append("transposed")
    return found
