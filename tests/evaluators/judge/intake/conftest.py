"""Imports torch once, without its warning that it has no numpy."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch

torch.set_num_threads(1)
