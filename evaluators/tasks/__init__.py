"""Tasks: where reference programs come from.

- `load_task(name_or_path: str) -> TaskSpec`, raises ConfigError
- `bundled_tasks() -> tuple[str, ...]`
"""

from __future__ import annotations

from evaluators.tasks.loading import bundled_tasks, load_task

__all__ = ["bundled_tasks", "load_task"]
