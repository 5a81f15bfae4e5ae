"""What Python raised, made short enough for a model. Texts are those of `evaluators/runners/program.py`."""

from __future__ import annotations

from evaluators.languages.triton.diagnostics import bound, explain_build, explain_call, headline
from messages.verdicts import Wrong

__all__ = ["bound", "explain_build", "explain_call", "explain_output"]


def explain_output(told: str) -> Wrong:
    """Return why what a call returned is no output."""
    return Wrong(reason=f"bad output type: {headline(told)}")
