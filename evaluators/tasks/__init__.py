"""Tasks: where reference programs come from.

- `load_task(name_or_path: str) -> TaskSpec`, raises ConfigError
- `bundled_tasks() -> tuple[str, ...]`
- `is_bundled(name: str) -> bool`
"""

from __future__ import annotations

from evaluators.tasks.loading import SIZES, bundled_tasks, is_bundled, load_task

__all__ = ["SIZES", "bundled_tasks", "is_bundled", "load_task"]
