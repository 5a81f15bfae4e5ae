"""TritonBench (thunlp/TritonBench): its problems G, Triton operators, and T, torch functions.

`tracing.py` and `replay.py` run in the judge: they make the inputs and the reference of a problem.
"""

from __future__ import annotations

from evaluators.tasks.defaults import candidate_of_json, find_competition
from evaluators.tasks.tritonbench.packing import candidate_of_text, reference_candidate
from evaluators.tasks.tritonbench.reading import read_task, recognizes

__all__ = [
    "candidate_of_json",
    "candidate_of_text",
    "find_competition",
    "read_task",
    "recognizes",
    "reference_candidate",
]
