"""Efforts: the presets that `--effort` chooses between, each a set of settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Effort: TypeAlias = Literal["quick", "standard", "full"]

EFFORTS: Mapping[Effort, Mapping[str, object]] = {
    "quick": {
        "search.branches": 4,
        "search.stagnation_window": 2,
        "search.repair_window": 3,
        "search.max_tries": 2,
        "search.budget.max_rounds": 16,
    },
    "standard": {
        "search.branches": 4,
        "search.stagnation_window": 3,
        "search.repair_window": 5,
        "search.max_tries": 3,
        "search.budget.max_rounds": 40,
    },
    "full": {
        "search.branches": 8,
        "search.stagnation_window": 3,
        "search.repair_window": 7,
        "search.max_tries": 3,
        "search.budget.max_rounds": 120,
    },
}
"""Settings of each effort: dotted path → value. `standard` is the defaults; 120 rounds are what the K-Search paper
(arXiv 2602.19128) gives each run, a window of 7 what its scripts give its hardest kernels, for repairs. A correct
branch has less: docs/design/0009 says why."""
