"""Compares an output with the expected one, and describes the common pattern of wrong elements.

Under the `strict` profile the tolerance is relative to the eager reference's own error: an element is right if

    |out - ref64| <= rtol * |ref64| + max(k * e, c * eps) * scale

where ref64 is the reference in float64, `e` the largest error of the reference in the task's own dtype relative to
`scale`, eps the dtype's, and `scale` the largest |ref64| of the element's row (the last dimension; the whole tensor if
that is shorter than 16). So near-zero rows need near-zero errors, and a kernel that computes fp32 sums in bf16 is
wrong. Other profiles (`tolerances.py`) have a fixed absolute part instead; on data that the task would not draw, the
error of their precision, if that is larger; their relative part is at least one rounding of the dtype. Infinities and
NaNs must be the same and in the same places; integers and booleans exact; for floats of eight bits see `low_bits.py`.
Works on any device, without a synchronisation per block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import torch

from evaluators.judge.check.low_bits import LOW_BITS, MOST_ROUNDED_OTHERWISE, in_full, steps_apart, wrong_steps
from evaluators.judge.check.tolerances import bounds_of
from evaluators.judge.data.arena import is_poison
from messages.tasks import Tolerance

K_REFERENCE_ERRORS = 16.0
K_ILL_CONDITIONED = 256.0
"""Replaces `K_REFERENCE_ERRORS` where roundings are amplified: a sum in another order then differs by far more than by
rounding the inputs (a sum of equal numbers has a systematic error)."""
_WELL_CONDITIONED = 64.0
K_LOOSE = 4.0
"""The same in profiles that allow a lower precision, with inputs rounded to it."""
C_ROUNDINGS = 4.0
_SHORT_ROW = 16
_FLOOR_OF_SCALE = 2.0**-10
"""Least scale of a row, as a share of the largest value anywhere, since some rows consist of cancellation only."""
_BLOCK_ELEMENTS = {"cpu": 1 << 17}
_LARGE_BLOCK_ELEMENTS = 1 << 26
"""Elements compared at once. On a CPU a block's temporaries stay in its caches, in half the time of blocks of 16 MiB.
Other devices need large blocks."""
_LEAST = 1e-300
_MOST_OF_LINE = 0.5
"""Largest share of a row or column that may be wrong in a profile that forgives wrong elements."""
_MOST_FORGIVEN = 0.1
"""Largest norm of an output's error relative to the output's, in a profile that forgives wrong elements. Intermediate
values of eight bits with one more rounding than in the reference cause 2 or 3 %; leaving out a hundredth, 10 %."""


class Errors(NamedTuple):
    """Differences between an output and the expected one."""

    wrong: torch.Tensor
    """Mask of the wrong elements, in the output's shape."""
    largest: float
    """Largest absolute error of elements with two finite values."""
    ratio: float
    """Largest error relative to what is allowed for its element; at most 1 if nothing is wrong."""
    own_ratio: float
    """Largest error relative to the reference's own error in the task's dtype (at least one rounding)."""


class Allowed:
    """Allowed distance of one output from the expected one."""

    def __init__(
        self,
        expected: torch.Tensor,
        native: torch.Tensor,
        tolerance: Tolerance,
        *,
        input_error: float | None = None,
    ) -> None:
        """Compute the bounds.

        Args:
            expected: the reference in float64 (or in its own dtype if it has no float64 form).
            native: the reference in the task's own dtype.
            tolerance: the task's tolerance.
            input_error: for data that the task would not draw, the relative change of the expected values when inputs
                are rounded to the allowed precision: no program can be better. None: the task draws this data.
        """
        self.dtype = native.dtype
        self.exact, self._is_low = not native.dtype.is_floating_point, False
        if self.exact:
            # If the reference itself depends on rounding (the index of a maximum), both answers are right.
            self._native = None if same_bytes(native, expected) else native
            return
        limits = torch.finfo(native.dtype)
        if native.dtype in LOW_BITS:
            self._is_low = True
            self.own_error = limits.eps / 2
            return
        rows = as_rows(expected)
        self._scale = _scale_of(rows)
        error = _largest_error(as_rows(native), rows, self._scale)
        self.own_error = max(error, limits.eps / 2)
        """Error of the reference in the task's dtype, relative to a row's scale; at least one rounding."""
        bounds = bounds_of(tolerance, str(native.dtype).removeprefix("torch.")).for_elements(native.numel())
        self.rtol, self._is_either, self._fixed_atol = bounds.rtol, bounds.is_either, bounds.atol
        self._matched = bounds.matched
        self._is_scaled = bounds.is_scaled
        factor = K_REFERENCE_ERRORS
        if self._fixed_atol is not None:
            factor = K_LOOSE
            # With a fixed tolerance below one rounding, only the reference's own bits would pass.
            self.rtol = max(self.rtol, limits.eps)
        elif (input_error or 0.0) > _WELL_CONDITIONED * limits.eps:
            factor = K_ILL_CONDITIONED
        self._relative = max(factor * max(error, input_error or 0.0), C_ROUNDINGS * limits.eps)
        self._is_drawn = input_error is None
        self._least = limits.tiny
        """Numbers below the smallest normal number may be flushed to zero."""

    def errors(self, out: torch.Tensor, expected: torch.Tensor) -> Errors:
        """Compare an output with the expected one from which this was computed."""
        if self.exact:
            return self._exact_errors(out, expected)
        if self._is_low:
            return _step_errors(out, expected, 1.0)
        return self._errors(out, expected, self._scale, 1.0)

    def errors_beside(self, out: torch.Tensor, eager: torch.Tensor) -> Errors:
        """Compare an output with the eager output for the same inputs, as for a timed call.

        Both may be inexact, so the bound counts twice. The scale is that of the eager output.
        """
        if self.exact:
            return self._exact_errors(out, eager)
        if self._is_low:
            return _step_errors(out, eager, 2.0)
        return self._errors(out, eager, _scale_of(as_rows(eager)), 2.0)

    def accepts_beside(self, out: torch.Tensor, eager: torch.Tensor) -> bool:
        """Return True if `errors_beside` finds nothing; fast if all values are finite."""
        if self.exact:
            return same_bytes(out, eager) or not bool(self.errors_beside(out, eager).wrong.any())
        if self._is_low:
            return not bool(self.errors_beside(out, eager).wrong.any())
        rows = as_rows(eager)
        scale = _scale_of(rows).to(eager.dtype)
        most = torch.finfo(eager.dtype).max
        fits = torch.ones((), dtype=torch.bool, device=out.device)
        for place, block, reference in _blocks(as_rows(out), rows):
            bound = self._bound(reference, self._atol(scale[place[0]])).mul_(2.0).clamp_(max=most)
            fits &= ((block - reference).abs_() <= bound).all()
        return bool(fits) or not bool(self.errors_beside(out, eager).wrong.any())

    def _errors(self, out: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor, leniency: float) -> Errors:
        rows = as_rows(expected)
        wrong = torch.empty(rows.shape, dtype=torch.bool, device=out.device)
        largest: list[torch.Tensor] = []
        for place, block, expected_block in _blocks(as_rows(out), rows):
            reference = expected_block.double()
            of_rows = scale[place[0]]
            bound = self._bound(reference, self._atol(of_rows)).mul_(leniency)
            error = (block - reference).abs_()
            finite = reference.isfinite() & block.isfinite()
            same = (block == reference) | (block.isnan() & reference.isnan())
            wrong[place] = torch.where(finite, ~(error <= bound), ~same)
            error.masked_fill_(~finite, 0.0)
            ratio = (error / bound.clamp_min_(_LEAST)).max()
            largest.append(torch.stack((error.max(), ratio, (error / of_rows).max())))
        worst, over_bound, over_scale = torch.stack(largest).amax(dim=0).tolist()
        found = Errors(wrong.view(out.shape), worst, over_bound, over_scale / self.own_error)
        return found if self._matched == 1.0 else self._forgiven(found, out, expected)

    def _forgiven(self, found: Errors, out: torch.Tensor, expected: torch.Tensor) -> Errors:
        """Return errors without the wrong elements that a profile forgives.

        They must be finite, scattered and small. An omitted part (an expert, a row, a block of columns) is not
        forgiven.
        """
        count, most = int(found.wrong.sum()), (1.0 - self._matched) * out.numel()
        is_finite = bool((out.isfinite() & expected.isfinite() | ~found.wrong).all())
        if not is_finite or count > most or _is_block(as_rows(found.wrong)) or _weight(out, expected) > _MOST_FORGIVEN:
            return found
        ratio = count / most if most else 0.0
        return Errors(torch.zeros_like(found.wrong), found.largest, ratio, found.own_ratio)

    def _atol(self, scale: torch.Tensor) -> torch.Tensor:
        own = scale.mul(self._relative).clamp_min_(self._least)
        if self._fixed_atol is None:
            return own
        if self._is_scaled:
            return torch.maximum(own, scale.mul(self._fixed_atol))
        # A fixed part suits the values that a task draws; for others it may be far below one rounding.
        return torch.full_like(scale, self._fixed_atol) if self._is_drawn else own.clamp_min_(self._fixed_atol)

    def _bound(self, reference: torch.Tensor, atol: torch.Tensor) -> torch.Tensor:
        relative: torch.Tensor = reference.abs().mul_(self.rtol)
        absolute = atol.to(relative.dtype)
        if self._is_either:
            relative.copy_(torch.maximum(relative, absolute))
        else:
            relative.add_(absolute)
        return relative

    def _exact_errors(self, out: torch.Tensor, expected: torch.Tensor) -> Errors:
        # A boolean's byte may contain more than 0 and 1, which is wrong.
        seen = out.view(torch.uint8) if out.dtype == torch.bool else out
        wrong = seen != _as_stored(expected)
        if self._native is not None:
            wrong &= seen != _as_stored(self._native)
        difference = (seen.double() - _as_stored(expected).double()).abs().max().item() if bool(wrong.any()) else 0.0
        ratio = float("inf") if difference else 0.0
        return Errors(wrong, difference, ratio, ratio)


def _is_block(wrong: torch.Tensor) -> bool:
    height, width = wrong.shape
    by_row, by_column = wrong.double().mean(dim=1), wrong.double().mean(dim=0)
    in_rows = width >= _SHORT_ROW and bool((by_row > _MOST_OF_LINE).any())
    return in_rows or (height >= _SHORT_ROW and bool((by_column > _MOST_OF_LINE).any()))


def _weight(out: torch.Tensor, expected: torch.Tensor) -> float:
    error = torch.linalg.vector_norm(out.double() - expected.double())
    return float(error / torch.linalg.vector_norm(expected.double()).clamp_min(_LEAST))


def _step_errors(out: torch.Tensor, expected: torch.Tensor, leniency: float) -> Errors:
    apart = steps_apart(out, expected.to(out.dtype))
    wrong = wrong_steps(apart, leniency * MOST_ROUNDED_OTHERWISE)
    difference = (out.double() - expected.double()).abs().nan_to_num(0.0, 0.0, 0.0)
    # One step is allowed, which is a ratio of 1; if too many elements are off by one, the ratio says how many too many.
    steps = float(apart.max())
    share = float((apart > 0).double().mean()) / (leniency * MOST_ROUNDED_OTHERWISE)
    return Errors(wrong, float(difference.max()), max(steps, share) if bool(wrong.any()) else min(steps, 1.0), steps)


def _as_stored(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a two-dimensional view in which a row is the part that is scaled together."""
    if tensor.dim() == 0 or tensor.shape[-1] < _SHORT_ROW:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return True if two dense tensors of one shape and dtype have the same bytes."""
    return torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))


def _scale_of(rows: torch.Tensor) -> torch.Tensor:
    # Ten times as fast as the infinity norm on a CPU, and without a copy.
    largest = torch.maximum(rows.amax(dim=1, keepdim=True), rows.amin(dim=1, keepdim=True).neg()).double()
    if not bool(largest.isfinite().all()):
        largest = torch.where(rows.isfinite(), rows, 0.0).abs().amax(dim=1, keepdim=True).double()
    return largest.clamp_min((largest.max() * _FLOOR_OF_SCALE).clamp_min(_LEAST))


def _largest_error(native: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor) -> float:
    found = [torch.zeros((), dtype=torch.float64, device=native.device)]
    for place, block, reference in _blocks(native, expected):
        error = (block.to(reference.dtype) - reference).abs_().nan_to_num_(0.0, 0.0, 0.0)
        found.append((error / scale[place[0]]).max())
    return float(torch.stack(found).max())


def relative_distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two floating-point tensors relative to the scale of its row in the first."""
    rows = as_rows(in_full(one))
    return _largest_error(as_rows(in_full(other)), rows, _scale_of(rows))


_Place: TypeAlias = tuple[slice, slice]


def _blocks(left: torch.Tensor, right: torch.Tensor) -> Iterator[tuple[_Place, torch.Tensor, torch.Tensor]]:
    rows, columns = left.shape
    elements = _BLOCK_ELEMENTS.get(left.device.type, _LARGE_BLOCK_ELEMENTS)
    height, width = max(1, elements // max(columns, 1)), elements if rows == 1 else columns
    for top in range(0, rows, height):
        for first in range(0, columns, width):
            place = slice(top, min(top + height, rows)), slice(first, min(first + width, columns))
            yield place, left[place], right[place]


def describe_wrong(out: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> tuple[str, ...]:
    """Return the common patterns of the wrong elements, most informative first."""
    untouched = is_poison(out) & wrong
    out, expected = in_full(out), in_full(expected)
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
