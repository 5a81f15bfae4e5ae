"""Triton: kernels in Python. Run by Triton's interpreter; compiled for a GPU ahead of time on request."""

from __future__ import annotations

from evaluators.languages.triton.support import TRITON

__all__ = ["TRITON"]
