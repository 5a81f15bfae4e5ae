"""Kernel limits of one process. Use beyond them fails, or for CPU time ends the process."""

from __future__ import annotations

import resource
import signal
from collections.abc import Mapping

from evaluators.process.sandbox.profiles import Profile

NAME = "rlimits"


def apply(profile: Profile, active: Mapping[str, str]) -> str:  # noqa: ARG001 - siblings look the same
    """Set the profile's limits for this process; a lower existing limit stays."""
    # Writing past the limit fails instead of killing: a candidate may print any amount, and the rest is dropped.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _bound(resource.RLIMIT_CORE, 0)
    _bound(resource.RLIMIT_RTPRIO, 0)  # else some users' processes may go before the judge
    for which, value in (
        (resource.RLIMIT_FSIZE, profile.file_bytes),
        (resource.RLIMIT_AS, profile.memory_bytes),
        (resource.RLIMIT_CPU, profile.cpu_s),
        (resource.RLIMIT_NOFILE, profile.open_files),
    ):
        if value > 0:
            _bound(which, value)
    return "rlimits"


def bound_processes(profile: Profile) -> None:
    """Limit the number of processes and threads, of its user in its user namespace, so only once it is in one."""
    if profile.processes > 0:
        _bound(resource.RLIMIT_NPROC, profile.processes)


def _bound(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))
