"""The two sides of a measurement, as handled by the judge: the candidate's runner and the baseline worker.

A side is a process that answers frames (`evaluators/runners/base.py`). Between its calls its process group is stopped
by SIGSTOP, so that it neither disturbs the other side nor works ahead. If requested and permitted, a side has real-time
priority during its calls, and only then (`urgency.py`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from evaluators.judge.time import heartbeat
from evaluators.judge.time.cores import cpu_ns, threads_of
from evaluators.judge.time.disturbance import Starving
from evaluators.judge.time.urgency import Urgency
from evaluators.process.watchdog import URGENT_S
from evaluators.runners.base import FRAME, MAGIC

Stage: TypeAlias = Literal["start", "load", "first call", "call", "timed call"]


_SOON_S = 0.25
"""Shorter calls are not observed while they run; less than a millisecond has no effect on others."""
_PATIENCE = 20
"""Multiple of its limit that a starved side may take."""
_STOP_S = 15.0
"""A process receives the signal when it gets a core, for which one of low priority may wait on a busy host."""
_STOP_POLL_S = 20e-6
_SETTLING_NS = 100_000
"""CPU time that threads may use between reporting that they stop and having stopped."""
_MOST_WENT_ON = 2
"""Number of violations that may be accidents of the kernel's accounting."""
_STOP_URGENTLY_S = 0.05
"""Seconds after which the threads of a side that has not stopped are demoted: one of them may spin in the kernel."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a side."""

    status: int
    elapsed_ns: int
    """Time by the judge's clock, from the request to the answer."""
    span_ns: int = 0
    """Time of the call by the device's clock, as reported by the side; 0 on a CPU. Never trusted alone."""
    after_ns: int = 0
    """Time from its answer until it had stopped, including a look at its outputs. A system call ends first."""


class NoAnswerError(Exception):
    """A side did not answer; `kind` gives the reason."""

    def __init__(
        self, kind: Literal["timed out", "ended", "bad frame", "cannot be stopped", "went on"], limit_s: float
    ) -> None:
        super().__init__(kind)
        self.kind = kind
        self.limit_s = limit_s


class Line:
    """The judge's end of a side's control socket, with the clock."""

    def __init__(self, control: socket.socket, pid: int, nonce: int, *, stops: bool = True) -> None:
        self._stops = stops
        self._control = control
        self._pid = pid
        self._pidfd = os.pidfd_open(pid)
        self._nonce = nonce
        self.is_urgent = False
        """True if it has real-time priority in timed calls."""
        self.workload = 0
        """Number of the workload that is called."""
        self.arrangement = 0
        """Number of the arrangement of its tensors."""
        self._sequence = 0
        self._went_on = 0
        """Number of times that it computed while it was stopped."""
        self._rested_ns: int | None = None
        """CPU time that it had used when it was stopped; None: it has not been stopped yet."""
        self._poll = select.poll()
        self._poll.register(control.fileno(), select.POLLIN)
        self._poll.register(self._pidfd, select.POLLIN)

    def exchange(
        self,
        operation: int,
        *,
        limit_s: float,
        is_timed: bool = False,
        take: Callable[[], None] | None = None,
        look: Callable[[], None] | None = None,
    ) -> Answer:
        """Continue the side, send a request, wait for its answer, stop it again.

        Args:
            operation: operation of the request.
            limit_s: limit of the wait.
            is_timed: give it priority, if it is to have any.
            take: called at the moment of the answer, within the measured time; takes the outputs.
            look: called after the clock is read, before the side is stopped.
        """
        self._refuse_early_answer(limit_s)
        self._refuse_to_have_gone_on(limit_s)
        self._sequence += 1
        request = FRAME.pack(MAGIC, operation, self._sequence, self._nonce, self.workload, self.arrangement)
        heartbeat.beat(limit_s)
        elapsed = after = 0
        with Urgency(threads_of(self._pid) if is_timed and self.is_urgent else ()) as urgency:
            # The clock is read first, so that a candidate's work on being continued (in a signal handler) is in its
            # time.
            begun = time.perf_counter_ns()
            if self._stops:
                self._signal(signal.SIGCONT)
            try:
                self._control.send(request)
            except OSError:
                raise NoAnswerError("ended", limit_s) from None
            ready = self._poll_patiently(limit_s, urgency)
            if ready and take is not None:
                take()
            answered = time.perf_counter_ns()
            elapsed = answered - begun
            if ready and look is not None:
                look()
            if self._stops or not ready:
                self._stop(limit_s, urgency)
                after = time.perf_counter_ns() - answered
        if self._stops or not ready:
            # Not at once: a thread's CPU time is accounted when it leaves its core, just after it reports that it
            # stops.
            time.sleep(_STOP_POLL_S)
            self._rested_ns = cpu_ns(self._pid)
        heartbeat.beat()
        if not ready:
            raise NoAnswerError("timed out", limit_s)
        status, span_ns = self._answer(operation, limit_s)
        return Answer(status=status, elapsed_ns=elapsed, span_ns=span_ns, after_ns=after)

    def _poll_patiently(self, limit_s: float, urgency: Urgency) -> list[tuple[int, int]]:
        """Wait for an answer; longer than the limit only while the side has not had its share of a core.

        That is checked only if the answer does not come soon, since reading each thread's state would be in its time.
        Nothing is read at real-time priority, which ends before.
        """
        soon_s = min(URGENT_S if urgency.is_on else _SOON_S, limit_s / 2)
        if ready := self._poll.poll(soon_s * 1000):
            return ready
        urgency.end()
        starving, left_s = Starving(self._pid), limit_s - soon_s
        for _ in range(_PATIENCE):
            for pause_s in starving.pauses_s(left_s):
                heartbeat.beat(pause_s)
                if ready := self._poll.poll(pause_s * 1000):
                    return ready
                starving.look()
            if not starving.is_starved(left_s):
                break
        return []

    def close(self) -> None:
        """Close the line. The side must have ended."""
        self._control.close()
        os.close(self._pidfd)

    def _refuse_early_answer(self, limit_s: float) -> None:
        """Check that nothing was answered before the question, which would stop the clock at its first reading."""
        with contextlib.suppress(OSError):
            if self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                raise NoAnswerError("bad frame", limit_s)

    def _refuse_to_have_gone_on(self, limit_s: float) -> None:
        """Check that it has not computed since it was stopped: timers can send the signal that continues it."""
        if self._rested_ns is not None and cpu_ns(self._pid) - self._rested_ns > _SETTLING_NS:
            self._went_on += 1
        if self._went_on > _MOST_WENT_ON:
            raise NoAnswerError("went on", limit_s)

    def _answer(self, operation: int, limit_s: float) -> tuple[int, int]:
        try:
            frame = self._control.recv(FRAME.size + 1, socket.MSG_DONTWAIT)
        except OSError:
            raise NoAnswerError("ended", limit_s) from None
        if not frame:
            raise NoAnswerError("ended", limit_s)
        if len(frame) != FRAME.size:
            raise NoAnswerError("bad frame", limit_s)
        magic, answered, sequence, nonce, status, span_ns = FRAME.unpack(frame)
        if (magic, answered, sequence, nonce) != (MAGIC, operation, self._sequence, self._nonce):
            raise NoAnswerError("bad frame", limit_s)
        return int(status), int(span_ns)

    def _stop(self, limit_s: float, urgency: Urgency) -> None:
        """Stop the side and wait until all its threads have stopped.

        Otherwise a thread that spins at a barrier would go on for milliseconds, on the core that the other side needs:
        the main thread receives the signal first, and may be waiting for a core itself.
        """
        self._signal(signal.SIGSTOP)
        begun = time.perf_counter()
        while True:
            # WNOWAIT leaves the exit to the process that reaps it, so nothing blocks here.
            state = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if state is not None:
                return
            spent_s = time.perf_counter() - begun
            if spent_s > _STOP_URGENTLY_S:
                urgency.end()
            if spent_s > _STOP_S:
                raise NoAnswerError("cannot be stopped", limit_s)
            time.sleep(_STOP_POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, number)
