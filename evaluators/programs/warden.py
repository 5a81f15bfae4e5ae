"""One candidate under watch: its own process, its limits, its end, and one line of JSON about it. Stdlib only.

A warden is forked from the zygote for one job. It reads the job from its socket, forks the process that scores the
candidate, and waits for the first of: its end, the time limit, or the closing of the socket by the other side, which
cancels the job. Then everything that descends from the candidate is killed and reaped (a warden is a subreaper), its
folder is removed, and the outcome is written to the socket.

Covered: candidates that hang, spin, spawn, print or eat memory without end, die of a signal, or leave the interpreter.
Not covered: a candidate that kills its warden (same user), reads the user's files, or lies about its score.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

LOG_BYTES = 8_000
"""Of a candidate's output, the end is kept."""
_REPORT_BYTES = 1 << 20
_CHUNK = 1 << 16
_MAX_JOB_BYTES = 16 << 20

Job = dict[str, object]
Score = Callable[[str], dict[str, object]]


def watch(connection: socket.socket, guard: ModuleType, score: Score) -> None:
    """Do one job.

    Args:
        connection: brings the job, takes the outcome.
        guard: `evaluators.process.guard`, loaded from its file.
        score: scores the program at a path, in the process that this calls it in.
    """
    job = _read_job(connection)
    if job is None:
        return
    folder = Path(str(job["folder"]))
    try:
        program = _lay_out(folder, job)
        outcome = _Trial(job, guard).run(connection, lambda: score(program))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if outcome is not None:
        with contextlib.suppress(OSError):  # the job was cancelled
            connection.sendall(json.dumps(outcome).encode() + b"\n")


def _read_job(connection: socket.socket) -> Job | None:
    received = bytearray()
    while not received.endswith(b"\n"):
        chunk = connection.recv(_CHUNK)
        if not chunk or len(received) > _MAX_JOB_BYTES:
            return None
        received += chunk
    job: Job = json.loads(received)
    return job


def _lay_out(folder: Path, job: Job) -> str:
    """Write the candidate's files; returns the path of the first, the main one."""
    files = job["files"]
    paths = []
    for name, text in files if isinstance(files, list) else ():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        paths.append(str(path))
    return paths[0]


class _Trial:
    """The process of one candidate, seen from its warden."""

    def __init__(self, job: Job, guard: ModuleType) -> None:
        self._job = job
        self._guard = guard
        self._limit_s = float(str(job["timeout_s"]))
        self._report = bytearray()
        self._log = bytearray()

    def run(self, connection: socket.socket, score: Callable[[], dict[str, object]]) -> dict[str, object] | None:
        """Run it to its end; None if the job was cancelled."""
        self._guard.become_subreaper()
        report_fd, report_end = os.pipe()
        log_fd, log_end = os.pipe()
        warden_pid, begun = os.getpid(), time.monotonic()
        pid = os.fork()
        if pid == 0:
            connection.close()
            self._be_candidate(warden_pid, report_end, log_end, score)
        for fd in (report_end, log_end):
            os.close(fd)
        for fd in (report_fd, log_fd):
            os.set_blocking(fd, False)
        how = self._wait(pid, connection.fileno(), report_fd, log_fd, begun + self._limit_s)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        self._end_descendants()
        wall_s = time.monotonic() - begun
        if how == "unwanted":
            return None
        self._drain(report_fd, log_fd)
        code = os.waitstatus_to_exitcode(status)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "how": how,
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "wall_s": wall_s,
            "cpu_s": spent.ru_utime + spent.ru_stime,
            "max_rss_bytes": usage.ru_maxrss * 1024,
            "report": _decoded(self._report) if how == "ended" else None,
            "log": self._log[-LOG_BYTES:].decode("utf-8", "replace"),
        }

    def _be_candidate(
        self, warden_pid: int, report_fd: int, log_fd: int, score: Callable[[], dict[str, object]]
    ) -> None:
        """Never returns."""
        code = 1
        try:
            self._guard.die_with_parent(warden_pid)
            os.setpgid(0, 0)
            _limit(resource.RLIMIT_DATA, int(str(self._job["memory_bytes"])))
            _limit(resource.RLIMIT_CORE, 0)
            _be_first_to_go()
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(log_fd, 1)
            os.dup2(log_fd, 2)
            said = json.dumps(score()).encode()
            sys.stdout.flush()
            sys.stderr.flush()
            while said:
                said = said[os.write(report_fd, said) :]
            code = 0
        finally:
            os._exit(code)

    def _wait(self, pid: int, connection_fd: int, report_fd: int, log_fd: int, deadline: float) -> str:
        """Wait for the first of the possible ends: `ended`, `timed_out` or `unwanted`."""
        child = os.pidfd_open(pid)
        watched = {connection_fd, child, report_fd, log_fd}
        while True:
            patience_s = deadline - time.monotonic()
            if patience_s <= 0:
                return "timed_out"
            ready, _, _ = select.select(list(watched), [], [], patience_s)
            for fd, kept, limit in ((report_fd, self._report, _REPORT_BYTES), (log_fd, self._log, 2 * LOG_BYTES)):
                if fd in ready and not _take(fd, kept, limit):
                    watched.discard(fd)
            if connection_fd in ready and not os.read(connection_fd, 1):
                return "unwanted"
            if child in ready:
                return "ended"

    def _drain(self, report_fd: int, log_fd: int) -> None:
        """Read the rest of the pipes: their other ends are closed."""
        for fd, kept, limit in ((report_fd, self._report, _REPORT_BYTES), (log_fd, self._log, 2 * LOG_BYTES)):
            while _take(fd, kept, limit):
                pass

    def _end_descendants(self) -> None:
        """Kill what the candidate left running. No child, no descendant: orphans come to a subreaper."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            self._guard.kill_descendants()


def _take(fd: int, kept: bytearray, limit: int) -> bool:
    """Take what a pipe holds, and keep the end of it. False if there is nothing more."""
    try:
        chunk = os.read(fd, _CHUNK)
    except BlockingIOError:
        return False
    kept += chunk
    del kept[:-limit]
    return bool(chunk)


def _decoded(report: bytearray) -> object:
    """Return what the candidate's process said; None if that is no report."""
    try:
        return json.loads(report)
    except ValueError:
        return None


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


def _be_first_to_go() -> None:
    """Have the kernel choose this process when memory is short."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
