"""Torch modules: a class `ModelNew` in the place of the reference's `Model`, in KernelBench's form."""

from __future__ import annotations

from evaluators.languages.base import LanguageSpec
from evaluators.languages.python import craft
from evaluators.languages.python.support import PYTHON, PYTHON_GPU

SPEC = LanguageSpec(
    main_path="program.py",
    suffixes=(".py",),
    fences=("python", "py", "python3"),
    is_native=False,
    supports={"cpu": PYTHON, "cuda": PYTHON_GPU},
    craft=craft,
    proof="""
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return 2.0 * x + x.mean(dim=-1, keepdim=True)
""",
    proof_part="2.0 * x",
)
