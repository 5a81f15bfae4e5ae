"""CUDA C++ for NVIDIA GPUs: raw `extern "C"` or tvm-ffi entry points, compiled by nvcc on any host."""

from __future__ import annotations

from evaluators.languages.cuda.support import CUDA

__all__ = ["CUDA"]
