"""Runs one command so that nothing of it outlives its parent or its limits. A script for `python -I -S`; stdlib only.

Its argument is a JSON object with the fields of `DEFAULTS`.

The guard's standard input is a pipe that its parent holds open and never writes to. When it ends (the parent closed
it, or died of whatever), the guard kills every process that descends from the command, reaps them, removes `scratch`,
and ends. It is a subreaper: a grandchild in a session of its own is still a descendant. When the command ends by
itself, the rest of its descendants is killed too, and one JSON line on standard output says how it went (`report`).

Covered: parents that are killed, commands that hang, spawn, print or eat memory without end.
Not covered: a command that kills its guard (same user); then only the direct child is killed (PR_SET_PDEATHSIG).
"""

# ruff: noqa: PTH123, PTH208 - pathlib would add a third to the start-up of every build

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

DEFAULTS: dict[str, object] = {
    "command": [],
    "wall_s": 0.0,  # 0: no limit
    "cpu_s": 0,
    "memory_bytes": 0,  # address space of each process
    "file_bytes": 0,  # largest file that it may write
    "idle": False,  # run only when nobody else wants the core
    "log_path": "",  # where its output goes; empty: it keeps the guard's standard error
    "log_bytes": 1 << 20,  # the rest is read and dropped
    "pass_fds": [],
    "scratch": "",  # folder that is removed if the parent dies
}


def become_subreaper() -> None:
    """Have orphans among this process's descendants come to it instead of to init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    Args:
        parent_pid: who the parent must be; if it is gone already, this process ends at once.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def live_on() -> None:
    """Undo `die_with_parent`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def descendants_of(pid: int) -> set[int]:
    """Return the ids of all living processes below `pid`."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The command's name stands in parentheses and may hold anything; the parent's id is the second field after.
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    pending = [pid]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return found


def kill_descendants(keep: frozenset[int] = frozenset(), *, patience_s: float = 2.0) -> bool:
    """Kill and reap everything below this process, which must be a subreaper. False if something would not die.

    Args:
        keep: children to leave alone, with all that is below them.
        patience_s: how long to try.
    """
    deadline = time.monotonic() + patience_s
    kept = set(keep).union(*(descendants_of(pid) for pid in keep))
    while True:
        remaining = descendants_of(os.getpid()) - kept
        for pid in remaining:
            _let_it_end(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for pid in remaining:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not remaining:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)


def _let_it_end(pid: int) -> None:
    """Give a process that gives way to others the means to end soon: dying takes time on a core, too."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, os.sched_getaffinity(0))
    with contextlib.suppress(OSError):  # without privileges nobody gets out of SCHED_IDLE
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def _limit(which: int, value: int) -> None:
    if value > 0:
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def give_way() -> None:
    """Have this process and its children run only when nobody else wants the core.

    The scheduler compares processes of one session, so what gives way must stay in the session of what it gives way to:
    with autogrouping, each session has an equal share, however idle its processes are.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _start(job: dict[str, object], log_fd: int) -> int:
    """Fork and execute the command in a process group of its own. Returns its process id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        os.setpgid(0, 0)
        if job["idle"]:
            give_way()
        _limit(resource.RLIMIT_AS, int(str(job["memory_bytes"])))
        _limit(resource.RLIMIT_FSIZE, int(str(job["file_bytes"])))
        _limit(resource.RLIMIT_CPU, int(str(job["cpu_s"])))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null if log_fd < 0 else log_fd, 1)
        if log_fd >= 0:
            os.dup2(log_fd, 2)
        passed = job["pass_fds"]
        for fd in passed if isinstance(passed, list) else ():
            os.set_inheritable(fd, True)
        command = job["command"]
        arguments = [str(part) for part in command] if isinstance(command, list) else []
        os.execvp(arguments[0], arguments)  # noqa: S606 - there is no shell
    except OSError as error:
        os.write(2, f"cannot run the command: {error}\n".encode())
    finally:
        os._exit(127)


class _Log:
    """The first bytes of the command's output, in a file."""

    def __init__(self, path: str, limit: int) -> None:
        self._left = limit
        self.cut = False
        self.read_fd = self.write_fd = self._file = -1
        if path:
            self.read_fd, self.write_fd = os.pipe()
            os.set_blocking(self.read_fd, False)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def drain(self) -> bool:
        """Take what is there. False once the other side is closed."""
        while True:
            try:
                chunk = os.read(self.read_fd, 1 << 16)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            if self._left > 0:
                os.write(self._file, chunk[: self._left])
            self.cut = self.cut or len(chunk) > self._left
            self._left -= len(chunk)


def _wait(pid: int, job: dict[str, object], log: _Log) -> str:
    """Wait for the command, reading its output. Returns `ended`, `timed_out` or `orphaned`."""
    wall_s = float(str(job["wall_s"]))
    deadline = time.monotonic() + wall_s if wall_s > 0 else None
    child = os.pidfd_open(pid)
    watched = [0, child] + ([log.read_fd] if log.read_fd >= 0 else [])
    while True:
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(watched, [], [], patience)
        if log.read_fd in ready and not log.drain():
            watched.remove(log.read_fd)
        if 0 in ready and not os.read(0, 4096):
            return "orphaned"
        if child in ready:
            return "ended"
        if deadline is not None and time.monotonic() >= deadline:
            return "timed_out"


def main() -> int:
    """Run the job given as the first argument."""
    job = DEFAULTS | json.loads(sys.argv[1])
    # Ctrl-C is for the one who started this, who lets work in flight finish.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    become_subreaper()
    log = _Log(str(job["log_path"]), int(str(job["log_bytes"])))
    begun = time.monotonic()
    pid = _start(job, log.write_fd)
    if log.write_fd >= 0:
        os.close(log.write_fd)
    how = _wait(pid, job, log)
    if how != "ended":
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    everything_died = kill_descendants()
    if log.read_fd >= 0:
        log.drain()
    if how == "orphaned":
        _remove(str(job["scratch"]))
        return 1
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(status)
    report = {
        "how": how,
        "exit_code": code if code >= 0 else None,
        "signal": -code if code < 0 else None,
        "wall_s": time.monotonic() - begun,
        "cpu_s": spent.ru_utime + spent.ru_stime,
        "max_rss_bytes": usage.ru_maxrss * 1024,
        "log_cut": log.cut,
        "everything_died": everything_died,
    }
    os.write(1, json.dumps(report).encode() + b"\n")
    return 0


def _remove(folder: str) -> None:
    if folder:
        import shutil  # noqa: PLC0415 - needed by orphans only, and a guard starts for every build

        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
