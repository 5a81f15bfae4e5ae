"""Tasks of the user's own: a folder with `task.toml` and a file with a plain function."""

from __future__ import annotations

from evaluators.tasks.defaults import candidate_of_json, candidate_of_text, find_competition, reference_candidate
from evaluators.tasks.own.reading import read_task, recognizes

__all__ = [
    "candidate_of_json",
    "candidate_of_text",
    "find_competition",
    "read_task",
    "recognizes",
    "reference_candidate",
]
