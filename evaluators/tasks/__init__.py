"""Tasks: where reference programs come from.

- `load_task(name_or_path: str) -> TaskSpec`, raises ConfigError
- `bundled_tasks() -> tuple[str, ...]`
- `is_bundled(name: str) -> bool`, `names_source(name: str) -> bool`
- `split_path(path: str) -> tuple[Path, str]`, `anchored(name: str) -> str`, `is_there(name: str) -> bool`,
  `is_gone(name: str) -> bool`
- `sizes_of(problem: str) -> tuple[str, ...]`, `workloads_of(problem: str) -> tuple[Workload, ...]`
"""

from __future__ import annotations

from evaluators.tasks.loading import (
    bundled_tasks,
    is_bundled,
    load_task,
    names_source,
    sizes_of,
    split_path,
    workloads_of,
)
from evaluators.tasks.selectors import anchored, is_gone, is_there

__all__ = [
    "anchored",
    "bundled_tasks",
    "is_bundled",
    "is_gone",
    "is_there",
    "load_task",
    "names_source",
    "sizes_of",
    "split_path",
    "workloads_of",
]
