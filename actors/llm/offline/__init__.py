"""The embedded default when no key is set: built-in rules behind a model's text interface. Not a language model.

    OfflineModel(seed=0, latency_s=0.0)    the dialect

It gets the real prompts and answers in the real formats, so parsing, validation and repair run as with any model. For
the coder it reads the reference with `ast` into a graph of element-wise operations and row reductions (`program.py`)
and writes C++ from a plan of transformations (`codegen.py`); for the planner it proposes transformations and revises V
from the measured results that it is shown (`planning.py`). What it has no rule for it says.
"""

from __future__ import annotations

from actors.llm.offline.model import OfflineModel

__all__ = ["OfflineModel"]
