"""C++17 with OpenMP for the CPU: raw `extern "C"` or tvm-ffi entry points."""

from __future__ import annotations

from evaluators.languages.cpp.support import CPP

__all__ = ["CPP"]
