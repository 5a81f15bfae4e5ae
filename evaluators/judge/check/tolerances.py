"""Named tolerance profiles: how far an output may differ from the reference. Does not import torch, for reading flags.

`strict` is ours. The others are the rules of benchmarks' own harnesses, for comparable figures:

- `kernelbench`: `allclose` with atol = rtol = 1e-4 for float32, 1e-2 for half types (KernelBench 423217d, March 2026,
  `get_tolerance_for_precision` in its `eval.py`; float64 is not evaluated there and has 1e-4 here);
- `flashinfer`: an element is wrong if its absolute error exceeds 1e-2 *and* its relative error 1e-2 (flashinfer-bench
  40e6ca78, April 2026, its default evaluator); `flashinfer:0.95` accepts 5 % wrong elements in an output, as there for
  mixtures of experts, but none that is not finite;
- `gpumode:RTOL,ATOL`: `allclose` with these, which differ between problems (`gpumode:2e-2,2e-2` for TriMul in
  reference-kernels f83cb92); `gpumode:RTOL,ATOL,sqrt` multiplies both by the square root of the output's number of
  elements, as for the prefix sum (`pmpp_v2/prefixsum_py`).
- `tritonbench`: 1e-3 of the value and 1e-3 of the largest value of its row for float32, 1e-2 for float16, 2e-2 for
  bfloat16. The upstream compares printed output, to four digits of at most 1000 elements, and mostly nothing
  (thunlp/TritonBench 603e28a, `1_exe_acc.py`); these are ours, since golds may round to TF32 and have no wider form.

In every profile infinities and NaNs must be where the reference has them, and integers are exact.
"""

from __future__ import annotations

import math

import msgspec

from messages.base import ConfigError
from messages.tasks import Tolerance

STRICT = "strict"
PROFILES = (STRICT, "kernelbench", "flashinfer", "flashinfer:RATIO", "gpumode:RTOL,ATOL")
_GPUMODE, _GROWING = "gpumode:", ",sqrt"
_MATCHED = "flashinfer:"

_STRICT_RTOL = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-3, "bfloat16": 1.6e-2}
_KERNELBENCH = {"float64": 1e-4, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
_TRITONBENCH = {"float64": 1e-5, "float32": 1e-3, "float16": 1e-2, "bfloat16": 2e-2}
_FLASHINFER = dict.fromkeys(_STRICT_RTOL, 1e-2)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds that a profile sets for one output."""

    rtol: float
    atol: float | None
    """None: it is derived from the reference's own error."""
    is_either: bool = False
    """True if satisfying the absolute *or* the relative bound suffices, instead of their sum."""
    is_scaled: bool = False
    """True if the absolute bound is for a row with 1 as its largest value, and scales with that."""
    grows: bool = False
    """True if both bounds are for an output of one element, and grow with the square root of their number."""
    matched: float = 1.0
    """Share of an output's elements that must be right."""

    def for_elements(self, count: int) -> Bounds:
        """Return the bounds of an output of `count` elements."""
        if not self.grows:
            return self
        factor = math.sqrt(count)
        atol = None if self.atol is None else self.atol * factor
        return msgspec.structs.replace(self, rtol=self.rtol * factor, atol=atol, grows=False)


def bounds_of(tolerance: Tolerance, dtype: str) -> Bounds:
    """Return the bounds that a task's tolerance sets for floating-point outputs of a dtype.

    Raises:
        ConfigError: there is no such profile.
    """
    bounds = _profile(tolerance.profile, dtype)
    return msgspec.structs.replace(
        bounds,
        rtol=bounds.rtol if tolerance.rtol is None else tolerance.rtol,
        atol=bounds.atol if tolerance.atol is None else tolerance.atol,
    )


def check_profile(name: str) -> None:
    """Check the name of a profile.

    Raises:
        ConfigError: there is no profile of that name.
    """
    _profile(name, "float32")


def say_tolerance(tolerance: Tolerance) -> str:
    """Return a tolerance in a word, for notes."""
    own = [
        f"{name} {value:g}" for name, value in (("rtol", tolerance.rtol), ("atol", tolerance.atol)) if value is not None
    ]
    return ", ".join((tolerance.profile, *own))


def _profile(name: str, dtype: str) -> Bounds:
    if name == STRICT:
        return Bounds(rtol=_STRICT_RTOL[dtype], atol=None)
    if name == "kernelbench":
        return Bounds(rtol=_KERNELBENCH[dtype], atol=_KERNELBENCH[dtype])
    if name == "flashinfer" or name.startswith(_MATCHED):
        return Bounds(rtol=_FLASHINFER[dtype], atol=_FLASHINFER[dtype], is_either=True, matched=_ratio(name))
    if name == "tritonbench":
        return Bounds(rtol=_TRITONBENCH[dtype], atol=_TRITONBENCH[dtype], is_scaled=True)
    if name.startswith(_GPUMODE):
        return _gpumode(name)
    raise ConfigError(f"unknown tolerance profile {name!r} (there are: {', '.join(PROFILES)})")


def _ratio(name: str) -> float:
    if not name.startswith(_MATCHED):
        return 1.0
    try:
        ratio = float(name.removeprefix(_MATCHED))
    except ValueError:
        ratio = math.nan
    if not 0.5 <= ratio <= 1:
        raise ConfigError(f"tolerance profile {name!r}: expected a ratio from 0.5 to 1, as in flashinfer:0.95")
    return ratio


def _gpumode(name: str) -> Bounds:
    said, grows = name.removeprefix(_GPUMODE), name.endswith(_GROWING)
    try:
        rtol, atol = (float(part) for part in said.removesuffix(_GROWING).split(","))
    except ValueError:
        raise ConfigError(f"tolerance profile {name!r}: expected two numbers, as in gpumode:2e-2,2e-2") from None
    if not all(math.isfinite(value) and value >= 0 for value in (rtol, atol)):
        raise ConfigError(f"tolerance profile {name!r}: expected finite numbers that are not negative")
    return Bounds(rtol=rtol, atol=atol, grows=grows)
