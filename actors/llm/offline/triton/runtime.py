"""Functions that generated Triton sources may hold: what `triton.language` lacks, without libdevice.

Polynomials of tanh are those of the Cephes library (Moshier, single precision: tanhf); expm1 near 0 is its Taylor
series to the eighth power, whose remainder at 0.5 is below a float's last place; log1p is log(w) x / (w - 1) with
w = 1 + x, which cancels the rounding of w (Kahan).
"""

from __future__ import annotations

_TANH = """\
@triton.jit
def tanh_lane(x):
    z = x * x
    p = -5.70498872745e-3
    p = p * z + 2.06390887954e-2
    p = p * z - 5.37397155531e-2
    p = p * z + 1.33314422036e-1
    p = p * z - 3.33332819422e-1
    p = p * z * x + x
    magnitude = tl.abs(x)
    large = 1.0 - 2.0 / (tl.exp(2.0 * magnitude) + 1.0)
    return tl.where(magnitude < 0.625, p, tl.where(x < 0.0, -large, large))"""

_EXPM1 = """\
@triton.jit
def expm1_lane(x):
    p = 1.0 / 40320.0
    p = p * x + 1.0 / 5040.0
    p = p * x + 1.0 / 720.0
    p = p * x + 1.0 / 120.0
    p = p * x + 1.0 / 24.0
    p = p * x + 1.0 / 6.0
    p = p * x + 0.5
    p = p * x * x + x
    return tl.where(tl.abs(x) < 0.5, p, tl.exp(x) - 1.0)"""

_LOG1P = """\
@triton.jit
def log1p_lane(x):
    w = 1.0 + x
    d = w - 1.0
    small = d == 0.0
    return tl.where(small, x, tl.log(w) * (x / tl.where(small, 1.0, d)))"""

FUNCTIONS: dict[str, str] = {"tanh_lane": _TANH, "expm1_lane": _EXPM1, "log1p_lane": _LOG1P}


def needed_functions(text: str) -> list[str]:
    """Return the definitions that `text` needs."""
    return [code for name, code in FUNCTIONS.items() if f"{name}(" in text]
