"""Exported kernels: one module each, which needs nothing of ours.

- `write_module(winner: Winner) -> str`, raises ConfigError
- `check_exportable(task: TaskSpec, candidate: Candidate) -> None`, raises ConfigError
- `check_call(task: TaskSpec, call: CallForm | None) -> None`, raises ConfigError
"""

from __future__ import annotations

from ksearch_async.export.module import check_call, check_exportable, write_module
from ksearch_async.export.receipt import Winner

__all__ = ["Winner", "check_call", "check_exportable", "write_module"]
