"""Torch modules: a class `ModelNew` in the place of the reference's `Model`, in KernelBench's form."""

from __future__ import annotations

from evaluators.languages.python.support import PYTHON, PYTHON_GPU

__all__ = ["PYTHON", "PYTHON_GPU"]
