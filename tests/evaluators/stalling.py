"""An entry of judges with a planted bug: when it is to time, a judge spins at real-time priority for ever."""

from __future__ import annotations

import os
from typing import NoReturn

from evaluators.judge import entry
from evaluators.judge.time.cpu import WorkloadTimer

ENTRY = __name__
prepare = entry.prepare


def stall(*_arguments: object, **_options: object) -> NoReturn:
    """Be the planted bug."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    while True:
        pass


def main(descriptor: str) -> int:
    """Serve the evaluator at the other end of a socket, until something is to be timed."""
    WorkloadTimer.check = stall  # type: ignore[method-assign]
    return entry.main(descriptor)
