"""Responsibility for lack of GPU memory, which judge and candidate share.

The judge drops the data that it keeps for later candidates before it blames one. A candidate that leaves the judge too
little memory to check its outputs has not passed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from evaluators.judge.candidate.candidate import HostError
from evaluators.judge.protocol import Judged, Passed
from evaluators.judge.reference.gpu_baseline import DEVICE
from evaluators.judge.reference.problem import NoMemoryError
from messages.verdicts import Crashed

_TOOK_ALL = "it takes nearly all of the GPU's memory, and the judge has too little left to check its outputs"
_NEARLY = 0.8
"""Share of the memory that was free before any candidate; the judge itself gradually uses some more."""


def free_bytes() -> int:
    """Return the free memory of a GPU."""
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(DEVICE)[0])


def others_bytes() -> int:
    """Return the GPU memory in use by other processes."""
    free, total = torch.cuda.mem_get_info(DEVICE)
    return int(total - free - torch.cuda.memory_reserved(DEVICE))


def has_as_much_free(before: int) -> bool:
    """Return True if about as much is free as before any candidate, so that no other process has taken it."""
    return free_bytes() > _NEARLY * before


def within_memory(
    judge: Callable[[], Passed | Judged],
    give_up: Callable[[], bool],
    keep: Callable[[bool], None],
    has_room: Callable[[], bool],
) -> Passed | Judged:
    """Judge a candidate; if memory was short, once more without the data kept for later ones.

    Args:
        judge: judges it. When it raises, the candidate is dead.
        give_up: drops the kept data and keeps nothing for now; returns False if there was none.
        keep: keeps data again: less from now on (True), or as much as before.
        has_room: returns True if as much memory is free as ever, without a candidate.
    """
    answer = _judged(judge)
    if answer is not None and not _lacks_memory(answer):
        return answer
    has_given_up = give_up()
    if has_given_up or answer is None:
        answer = _judged(judge)
    keep(has_given_up and answer is not None and not _lacks_memory(answer))
    if answer is not None:
        return answer
    if not has_room():
        raise HostError("the GPU has too little memory left to judge a candidate: other processes use it")
    return Judged(verdict=Crashed(reason=_TOOK_ALL, stage="evaluation"))


def _judged(judge: Callable[[], Passed | Judged]) -> Passed | Judged | None:
    """Judge it; None if the judge itself had too little memory."""
    try:
        return judge()
    except (NoMemoryError, torch.OutOfMemoryError):
        return None


def _lacks_memory(answer: Passed | Judged) -> bool:
    verdict = answer.verdict if isinstance(answer, Judged) else None
    return isinstance(verdict, Crashed) and "out of memory" in f"{verdict.reason} {verdict.log}".lower()
