"""Torch modules in KernelBench's form."""

from __future__ import annotations

from evaluators.hardware.roofline import Hardware

RULES = """\
- Write a torch module, `ModelNew`, as the contract says. Import nothing but torch, numpy and the standard library.
- Where the task denies library calls, only views, copies and plain elementwise operators of torch may be called: no
  reduction, product or fused operator, also not in `__init__`."""

EXAMPLE = """\
(`self.linear(x).sum(dim=1)`, where library calls are allowed.) The sum is folded into the weights once.

```python path=program.py
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.register_load_state_dict_post_hook(lambda module, _: module.fold())

    def fold(self):
        self.folded = self.linear.weight.detach().sum(dim=0)
        self.offset = self.linear.bias.detach().sum()

    def forward(self, x):
        return torch.mv(x, self.folded) + self.offset
```"""


def advice(hardware: Hardware) -> tuple[str, ...]:  # noqa: ARG001 - the library has its own ways on each device
    """Return nothing: torch chooses its kernels itself."""
    return ()
