"""KernelBench: problems, candidates and metrics in its formats (github.com/ScalingIntelligence/KernelBench).

Its files are read where the user has them. None is part of this package, and its harness is never run.
"""

from __future__ import annotations

from evaluators.tasks.kernelbench.reading import check_problem, find_problem

__all__ = ["check_problem", "find_problem"]
