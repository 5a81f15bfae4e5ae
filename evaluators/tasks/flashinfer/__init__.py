"""FlashInfer-Bench: definitions, workloads, solutions and traces in its formats (github.com/flashinfer-ai).

Its files are read where the user has them. None is part of this package, and its harness is never run.
"""

from __future__ import annotations

from evaluators.tasks.defaults import candidate_of_text, find_competition, reference_candidate
from evaluators.tasks.flashinfer.packing import candidate_of_json
from evaluators.tasks.flashinfer.reading import read_task, recognizes

__all__ = [
    "candidate_of_json",
    "candidate_of_text",
    "find_competition",
    "read_task",
    "recognizes",
    "reference_candidate",
]
