"""The embedded default when no key is set: built-in rules behind a model's text interface. Not a language model.

    OfflineModel(seed=0, latency_s=0.0)    the dialect

It gets the real prompts and answers in the real formats, so parsing, validation and repair run as with any model. What
it has no rule for it says.

    reading.py             prompts, as a model would read them
    program.py             the reference, read with `ast` by walk.py (statements), constants.py (what `__init__` sets),
                           rules.py and stages/rules.py (torch's operations), into one of two kinds of programs:
      graph.py             `Program`: element-wise operations and reductions over rows and columns; tracing.py makes it
      stages/ir.py         `Staged`: contractions and row stages over strided tensors; stages/tracing.py makes tensors
                           of it, stages/lowering.py stages, stages/groups.py what can run block by block
    plan.py, moves.py      transformations and their parameters; a language has a catalogue per kind of program
    cpp/, triton/          those catalogues, and the writers of sources; languages.py chooses
    coding.py, planning.py the answers of the two roles; planning revises V from the measured results it is shown
    mistakes.py            answers spoiled on purpose
"""

from __future__ import annotations

from actors.llm.offline.model import OfflineModel

__all__ = ["OfflineModel"]
