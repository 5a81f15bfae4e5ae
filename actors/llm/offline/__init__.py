"""The embedded default when no key is set: built-in rules behind a model's text interface. Not a language model.

    OfflineModel(seed=0, latency_s=0.0)    the dialect

It gets the real prompts and answers in the real formats, so parsing, validation and repair run as with any model. For
the coder it reads the reference with `ast` (`program.py`) into a graph of element-wise operations and row reductions
or a list of stages, and writes C++ or Triton, whichever contract the prompt shows, from a plan of transformations
(`cpp/`, `triton/`); for the planner it proposes transformations and revises V from the measured results that it is
shown (`planning.py`). What it has no rule for it says.
"""

from __future__ import annotations

from actors.llm.offline.model import OfflineModel

__all__ = ["OfflineModel"]
