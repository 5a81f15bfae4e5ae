"""The embedded default when no key is set: built-in rules behind a model's text interface. Not a language model.

    OfflineModel(seed=0, latency_s=0.0)    the dialect

It gets the real prompts and answers in the real formats, so parsing, validation and repair run as with any model. If it
has no rule, its answer names what is missing.

    reading.py             prompts, as a model would read them
    reference.py           the reference, walked by its syntax tree; tensors.py has the operations of torch
    stages.py, lowering.py programs: stages of rows and contractions over strided tensors, and groups of them
    plan.py                transformations and their parameters
    cpp/, triton/          the transformations of a language, and its sources
    answers.py             the answers of the two roles
    mistakes.py            mistakes put into answers on purpose
"""

from __future__ import annotations

from actors.llm.offline.model import OfflineModel

__all__ = ["OfflineModel"]
