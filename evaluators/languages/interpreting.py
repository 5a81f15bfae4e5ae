"""When a CPU stands in for a GPU: Triton inside Python is interpreted there, and time means nothing."""

from __future__ import annotations

from evaluators.languages import support_of
from evaluators.languages.triton.support import TRITON
from messages.base import Language
from messages.tasks import Candidate, Platform, TaskSpec

_KERNEL = "triton.jit"


def is_interpreted(task: TaskSpec, platform: Platform) -> bool:
    """Say whether calls are as slow here as an interpreter is."""
    texts = (task.text, *(file.text for file in task.files))
    return platform == "cpu" and (task.source == "tritonbench" or any(_KERNEL in text for text in texts))


def why_untimed(task: TaskSpec, language: Language, platform: Platform) -> str:
    """Return why this host cannot say how fast candidates of a task are; empty where they are timed."""
    return support_of(language, platform).not_timed or (TRITON.not_timed if is_interpreted(task, platform) else "")


def why_candidate_untimed(candidate: Candidate, platform: Platform) -> str:
    """Return why this host cannot say how fast a candidate is: it holds kernels that are interpreted."""
    holds = candidate.language == "python" and any(_KERNEL in file.text for file in candidate.files)
    return TRITON.not_timed if platform == "cpu" and holds else ""
