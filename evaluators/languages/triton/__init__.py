"""Triton: kernels in Python. On the CPU run by Triton's interpreter; on NVIDIA GPUs compiled when built, and timed."""

from __future__ import annotations

from evaluators.languages.triton.support import TRITON, TRITON_GPU

__all__ = ["TRITON", "TRITON_GPU"]
