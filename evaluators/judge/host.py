"""Whether a candidate's failure was this host's: no memory left, no room on the disk. The system tells, not a text."""

from __future__ import annotations

from pathlib import Path

from evaluators.disk import is_full
from messages.verdicts import Crashed, DidNotBuild, TimedOut, Verdict


class HostError(Exception):
    """The host has made a candidate fail: the judge is broken, not the candidate."""


class Host:
    """Watches the host of a judge."""

    def __init__(self) -> None:
        self._killed = _processes_killed()

    def answer_for(self, verdict: Verdict) -> None:
        """See that a failure is the candidate's own.

        Raises:
            HostError: it may be the host's.
        """
        killed, before = _processes_killed(), self._killed
        self._killed = killed
        if not isinstance(verdict, Crashed | DidNotBuild | TimedOut):
            return
        if killed > before and "SIGKILL" in verdict.reason:
            raise HostError("this host ran out of memory while a candidate was judged")
        if is_full(Path.cwd()):
            raise HostError(f"the disk under {str(Path.cwd())!r} is full")


def _processes_killed() -> int:
    """Return how many processes the kernel has killed for want of memory; 0 where it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
