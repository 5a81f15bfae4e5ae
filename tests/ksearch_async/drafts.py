"""Answers of a model that drafts tasks."""

from __future__ import annotations

NAME = "bmm_bias_gelu"
DOCUMENT = """\
name = "bmm_bias_gelu"
description = "Batched product of matrices, then a bias and GELU."
reference = "reference.py:bmm_bias_gelu"

[[inputs]]
name = "a"
shape = ["batch", "rows", "inner"]
dtype = "bfloat16"

[[inputs]]
name = "b"
shape = ["batch", "inner", "columns"]
dtype = "bfloat16"
distribution = "normal(0, 0.2)"

[[inputs]]
name = "bias"
shape = ["columns"]
dtype = "bfloat16"

[workloads]
small = {batch = 2, rows = 8, inner = 32, columns = 24}
odd = {batch = 3, rows = 7, inner = 31, columns = 23}

[hidden_workloads]
held_out = {batch = 2, rows = 5, inner = 17, columns = 19}
"""
REFERENCE = '''\
"""Batched product of matrices, then a bias and GELU."""

import torch
from torch.nn import functional


def bmm_bias_gelu(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    wide = torch.promote_types(a.dtype, torch.float32)
    product = torch.bmm(a.to(wide), b.to(wide)) + bias.to(wide)
    return functional.gelu(product).to(a.dtype)
'''


def answer(document: str = DOCUMENT, reference: str = REFERENCE) -> str:
    """Return an answer in the form that is asked for."""
    return f"Here it is.\n\n```toml\n{document}```\n\n```python\n{reference}```\n"
