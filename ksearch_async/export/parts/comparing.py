"""Part of exported modules: the judge's comparison.

An element is right if `|out - ref64| <= rtol * |ref64| + atol`. Where the task's tolerance fixes no `atol`, it is
`max(16 * e, 4 * eps) * scale`: `e` is what the reference itself loses in its own dtype, relative to `scale`, the
largest value of the element's row (of the whole tensor if rows are shorter than 16). Infinities and NaNs must be where
the reference has them; integers and booleans are exact.
"""

from __future__ import annotations

import torch


def compare(
    out: torch.Tensor, expected: torch.Tensor, native: torch.Tensor, bounds: tuple[float, float | None, bool]
) -> tuple[int, float, float]:
    """Return how many elements are wrong, the largest error, and the largest error over what is allowed.

    Args:
        out: the kernel's output.
        expected: the reference in float64 where it has such a form.
        native: the reference in its own dtype.
        bounds: see `BOUNDS`.
    """
    if not native.dtype.is_floating_point:
        count = int(((out != expected) & (out != native)).sum())
        largest = (out.double() - expected.double()).abs().max().item() if count else 0.0
        return count, largest, float("inf") if count else 0.0
    found, reference, own = (_as_rows(tensor).double() for tensor in (out, expected, native))
    allowed = _allowed(reference, own, native.dtype, bounds)
    error = (found - reference).abs()
    finite = reference.isfinite() & found.isfinite()
    same = (found == reference) | (found.isnan() & reference.isnan())
    wrong = torch.where(finite, ~(error <= allowed), ~same)
    error = torch.where(finite, error, 0.0)
    return int(wrong.sum()), error.max().item(), (error / allowed.clamp_min(1e-300)).max().item()


def _allowed(
    reference: torch.Tensor, own: torch.Tensor, dtype: torch.dtype, bounds: tuple[float, float | None, bool]
) -> torch.Tensor:
    rtol, atol, is_either = bounds
    relative = reference.abs() * rtol
    if atol is None:
        largest = torch.where(reference.isfinite(), reference, 0.0).abs().amax(dim=1, keepdim=True)
        scale = largest.clamp_min(max(largest.max().item() * 2.0**-10, 1e-300))
        lost = ((own - reference).abs().nan_to_num(0.0, 0.0, 0.0) / scale).max().item()
        limits = torch.finfo(dtype)
        absolute = (scale * max(16.0 * lost, 4.0 * limits.eps)).clamp_min(limits.tiny)
    else:
        absolute = torch.full_like(reference[:, :1], atol)
    return torch.maximum(relative, absolute) if is_either else relative + absolute


def _as_rows(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.shape[-1] < 16:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])
