"""The two sides of a measurement, as the judge holds them: the candidate's runner and the baseline worker.

A side is a process that answers frames (`evaluators/runners/base.py` defines them). Between its calls it is stopped by
SIGSTOP, all of its process group, so that it neither disturbs the other side nor works ahead.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from evaluators.runners.base import FRAME, MAGIC

Stage: TypeAlias = Literal["start", "load", "first call", "call", "timed call"]


_PATIENCE = 20
"""How many times its limit a side may take that is starved."""
_STOP_S = 1.0
_STOP_POLL_S = 20e-6
JUDGE_PRIORITY = 2
_SIDE_PRIORITY = 1


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A side answered."""

    status: int
    elapsed_ns: int


class NoAnswerError(Exception):
    """A side did not answer; `kind` says how."""

    def __init__(self, kind: Literal["timed out", "ended", "bad frame", "cannot be stopped"], limit_s: float) -> None:
        super().__init__(kind)
        self.kind = kind
        self.limit_s = limit_s


class Side(Protocol):
    """What the stopwatch asks of either side."""

    empty_ns: int
    """Cost of an empty call."""

    def ask(self, operation: int, *, limit_s: float) -> Answer:
        """Let it run until it answers.

        Raises:
            NoAnswerError: it does not, in time or at all.
        """

    def hurry(self, *, first: bool) -> bool:
        """Put the side before other processes, or back; False where that is not permitted."""


def schedule(pid: int, priority: int) -> bool:
    """Give all threads of a process a real-time priority, or with 0 the normal policy. False where not permitted.

    Niceness would not do: a normal process keeps its core until the next tick, some milliseconds, whoever waits.
    """
    policy = os.SCHED_RR if priority else os.SCHED_OTHER
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
    except OSError:
        return False
    return True


def is_starved(pid: int, used_s: float, limit_s: float) -> bool:
    """Say whether a process wanted a core during the last `limit_s` and was given little of it.

    What gives way to others may wait for long on a busy host; that is not the candidate's fault.

    Args:
        pid: the process.
        used_s: its CPU seconds when it was asked.
        limit_s: how long ago that was, at least.
    """
    try:
        states = [_stat(task / "stat")[0] for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return False
    return "R" in states and cpu_s(pid) - used_s < limit_s / 2


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 if it is gone."""
    try:
        fields = _stat(Path(f"/proc/{pid}/stat"))
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _stat(path: Path) -> list[str]:
    """Return the fields behind the command's name, which stands in parentheses and may hold anything."""
    return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


class Line:
    """The judge's end of a side's control socket, with the clock."""

    def __init__(self, control: socket.socket, pid: int, nonce: int) -> None:
        self._control = control
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._nonce = nonce
        self._sequence = 0
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)

    def exchange(self, operation: int, *, limit_s: float) -> Answer:
        """Continue the side, send a request, wait for its answer, stop it again.

        Raises:
            NoAnswerError: the side ended, was silent for `limit_s`, or sent something else.
        """
        self._sequence += 1
        request = FRAME.pack(MAGIC, operation, self._sequence, self._nonce, 0)
        self._signal(signal.SIGCONT)
        begun = time.perf_counter_ns()
        try:
            self._control.send(request)
        except OSError:
            raise NoAnswerError("ended", limit_s) from None
        ready = self._poll_patiently(limit_s)
        elapsed = time.perf_counter_ns() - begun
        self._stop(limit_s)
        if not ready:
            raise NoAnswerError("timed out", limit_s)
        return Answer(status=self._status(operation, limit_s), elapsed_ns=elapsed)

    def _poll_patiently(self, limit_s: float) -> list[tuple[int, int]]:
        """Wait for an answer; longer than the limit only while the side has not had its share of a core."""
        used_s = cpu_s(self._pid)
        for _ in range(_PATIENCE):
            ready = self._poll.poll(limit_s * 1000)
            if ready or not is_starved(self._pid, used_s, limit_s):
                return ready
        return []

    def hurry(self, *, first: bool) -> bool:
        """Put the side before other processes, or back; False where that is not permitted."""
        return schedule(self._pid, _SIDE_PRIORITY if first else 0)

    def close(self) -> None:
        """Forget the side; it must have ended."""
        self._control.close()
        os.close(self._pidfd)

    def _status(self, operation: int, limit_s: float) -> int:
        try:
            frame = self._control.recv(FRAME.size + 1, socket.MSG_DONTWAIT)
        except OSError:
            raise NoAnswerError("ended", limit_s) from None
        if not frame:
            raise NoAnswerError("ended", limit_s)
        if len(frame) != FRAME.size:
            raise NoAnswerError("bad frame", limit_s)
        magic, answered, sequence, nonce, status = FRAME.unpack(frame)
        if (magic, answered, sequence, nonce) != (MAGIC, operation, self._sequence, self._nonce):
            raise NoAnswerError("bad frame", limit_s)
        return int(status)

    def _stop(self, limit_s: float) -> None:
        """Stop the side and wait until all its threads have stopped.

        Without waiting, a thread that spins at a barrier goes on for milliseconds, on the core that the other side
        needs: the signal is taken by the main thread first, and that one may be waiting for a core itself.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.perf_counter() + _STOP_S
        while True:
            # WNOWAIT: an exit is left for whoever reaps the process.
            state = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if state is not None:
                return
            if time.perf_counter() > deadline:
                raise NoAnswerError("cannot be stopped", limit_s)
            time.sleep(_STOP_POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)
