"""Tasks: where reference programs come from."""

from __future__ import annotations

from evaluators.tasks.registry import (
    bundled_tasks,
    candidate_of_json,
    candidate_of_text,
    find_competition,
    is_bundled,
    load_task,
    names_source,
    reference_candidate,
    sizes_of,
    split_path,
    task_of_text,
    workloads_of,
)
from evaluators.tasks.selectors import anchored, is_gone, is_there

__all__ = [
    "anchored",
    "bundled_tasks",
    "candidate_of_json",
    "candidate_of_text",
    "find_competition",
    "is_bundled",
    "is_gone",
    "is_there",
    "load_task",
    "names_source",
    "reference_candidate",
    "sizes_of",
    "split_path",
    "task_of_text",
    "workloads_of",
]
