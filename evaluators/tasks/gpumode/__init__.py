"""GPUMode's problems (github.com/gpu-mode/reference-kernels): folders with `task.yml` and `reference.py`."""

from __future__ import annotations

from evaluators.tasks.defaults import candidate_of_json, reference_candidate
from evaluators.tasks.gpumode.packing import candidate_of_text
from evaluators.tasks.gpumode.reading import read_task, recognizes
from evaluators.tasks.gpumode.scoring import find_competition

__all__ = [
    "candidate_of_json",
    "candidate_of_text",
    "find_competition",
    "read_task",
    "recognizes",
    "reference_candidate",
]
