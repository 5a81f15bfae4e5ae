"""KernelBench: problems, candidates and metrics in its formats (github.com/ScalingIntelligence/KernelBench).

Its files are read where the user has them. None is part of this package, and its harness is never run.
"""

from __future__ import annotations

from evaluators.tasks.defaults import candidate_of_json, candidate_of_text, find_competition, reference_candidate
from evaluators.tasks.kernelbench.reading import check_problem, find_problem, read_task, recognizes

__all__ = [
    "candidate_of_json",
    "candidate_of_text",
    "check_problem",
    "find_competition",
    "find_problem",
    "read_task",
    "recognizes",
    "reference_candidate",
]
