"""Runs one command so that nothing of it outlives its parent or its limits. A script for `python -I -S`; stdlib only.

Its argument is a JSON object with the fields of `GuardJob` (`guarded.py`).

The parent holds the guard's standard input open and never writes to it. When it closes, the guard kills and reaps all
descendants of the command, removes `scratch`, and ends. It is a subreaper: a grandchild in a session of its own is
still a descendant. When the command ends by itself, its remaining descendants are killed, too, and one JSON line on
standard output reports how it ended. Killed processes are demoted first: at real-time priority a thread may spin in the
kernel for ever.

Covered: parents that are killed; commands that hang, spawn, print or allocate without end. Not covered: an unconfined
command that kills its guard; then only the direct child is killed (PR_SET_PDEATHSIG).
"""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    from evaluators.process.watchdog import Pulse

# ruff: noqa: PTH123, PTH208 - pathlib would add a third to the start-up of every build


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MAX_FDS = 1 << 16

Job: TypeAlias = Mapping[str, Any]
"""The fields of a `GuardJob`."""


def become_subreaper() -> None:
    """Make this process the parent of orphans among its descendants, instead of init."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when the thread that started it ends; end at once if the parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def live_on() -> None:
    """Undo `die_with_parent`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)


def fork_child(work: Callable[[], int], *, close_fds: Sequence[int]) -> int:
    """Fork a child in its own process group that runs `work` and exits with its result, or with this thread."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        die_with_parent(parent)
        os.setpgid(0, 0)
        for fd in close_fds:
            os.close(fd)
        status = work()
    finally:
        os._exit(status)


def descendants_of(pid: int, *, but: frozenset[int] = frozenset()) -> set[int]:
    """Return the ids of all living processes below `pid`, without those in `but` and their descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
            # The command's name is in parentheses and may contain anything; the parent's id is the second field after
            # it.
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(name))
    found: set[int] = set()
    pending = [pid]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found and child not in but:
                found.add(child)
                pending.append(child)
    return found


def kill_descendants(keep: frozenset[int] = frozenset(), *, patience_s: float = 2.0) -> list[str]:
    """Demote, kill and reap everything below this subreaper except `keep` and their descendants.

    Returns:
        The processes that did not die, described for people.
    """
    deadline = time.monotonic() + patience_s
    while True:
        remaining = descendants_of(os.getpid(), but=keep)
        for pid in remaining:
            kill(pid)
        for pid in remaining:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not remaining:
            return []
        if time.monotonic() > deadline:
            named = [_named(pid) for pid in sorted(remaining)]
            os.write(2, f"killed, but would not die: {', '.join(named)}\n".encode())
            return named
        time.sleep(0.002)


def kill(pid: int) -> None:
    """Demote all threads of a process, then kill it, if it exists."""
    _let_it_end(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _named(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().decode(errors="replace").rpartition(")")
    except OSError:
        return str(pid)
    return f"{pid} ({before.partition('(')[2]}, state {after.split()[0]})"


def _wants_a_core(pids: set[int]) -> bool:
    """Return True if a thread of these processes only waits for a core (R) or a page from a disk (D)."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] in (b"R", b"D"):
                        return True
    return False


def _let_it_end(pid: int) -> None:
    """Give all threads of a process normal priority, idle ones included: dying takes time on a core."""

    def threads() -> Iterator[int]:
        # The main thread first, without reading /proc, for which a thread in the kernel may be waiting.
        yield pid
        with contextlib.suppress(OSError):
            yield from map(int, os.listdir(f"/proc/{pid}/task"))

    for thread in threads():
        with contextlib.suppress(OSError):  # without privileges no thread gets out of SCHED_IDLE
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, os.sched_getaffinity(0))


def _limit(which: int, value: int) -> None:
    if value > 0:
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def give_way() -> None:
    """Run this process and its children only while no other process wants the core.

    They must stay in the session of the processes that they yield to: with autogrouping, sessions have equal shares.
    """
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _start(job: Job, log_fd: int, execute: Callable[[Job], None]) -> int:
    """Fork and execute the command in a process group of its own. Returns its process id."""

    def work() -> NoReturn:
        try:
            if job["idle"]:
                give_way()
            _limit(resource.RLIMIT_AS, job["memory_bytes"])
            _limit(resource.RLIMIT_FSIZE, job["file_bytes"])
            _limit(resource.RLIMIT_CPU, job["cpu_s"])
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _confine(job)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null if log_fd < 0 else log_fd, 1)
            if log_fd >= 0:
                os.dup2(log_fd, 2)
            if job["isolation"]:
                os.closerange(3, _MAX_FDS)
            execute(job)
        except OSError as error:
            os.write(2, f"cannot run the command: {error}\n".encode())
        finally:
            os._exit(127)

    return fork_child(work, close_fds=())


def _execute(job: Job) -> None:
    for fd in job["pass_fds"]:
        os.set_inheritable(fd, True)
    command = job["command"]
    os.execvp(command[0], command)  # noqa: S606 - there is no shell


def _confine(job: Job) -> None:
    """Enter the sandbox that the job requests; only this folder is writable."""
    if not job["isolation"]:
        return
    _find_ours()
    from evaluators.process.sandbox import profiles  # noqa: PLC0415 - needed for builds only, not for judges
    from evaluators.process.sandbox.claims import missing_for_strict  # noqa: PLC0415
    from evaluators.process.sandbox.confine import confine  # noqa: PLC0415

    missing = missing_for_strict(confine(profiles.build(os.getcwd(), reads=tuple(job["reads"]))).claim)  # noqa: PTH109
    if job["isolation"] == "strict" and missing:
        raise OSError(f"--isolation strict, but a build here lacks {', '.join(missing)}")


def _take_back(folder: str) -> None:
    """Take ownership of the files that a confined command left as another user."""
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        return
    pending = [folder]
    while pending:  # not by recursion: the command may have made more folders inside each other than that bears
        path = pending.pop()
        os.lchown(path, user, group)
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    os.lchown(entry.path, user, group)


class _Log:
    def __init__(self, path: str, limit: int) -> None:
        self._left = limit
        self.cut = False
        self.read_fd = self.write_fd = self._file = -1
        if path:
            self.read_fd, self.write_fd = os.pipe()
            os.set_blocking(self.read_fd, False)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)

    def drain(self) -> bool:
        """Read the available output. False once the other side is closed."""
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


def _wait(pid: int, job: Job, log: _Log, pulse: Pulse | None, dog: int) -> str:
    deadline = time.monotonic() + job["wall_s"] if job["wall_s"] > 0 else None
    child = os.pidfd_open(pid)
    watched = [0, child] + [fd for fd in (log.read_fd, dog) if fd >= 0]
    while True:
        patience = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select(watched, [], [], patience)
        if log.read_fd in ready and not log.drain():
            watched.remove(log.read_fd)
        if 0 in ready and not os.read(0, 4096):
            return "orphaned"
        if pulse is not None and pulse.has_stalled:
            return "stalled"
        if dog in ready:
            watched.remove(dog)
        if child in ready:
            return "ended"
        if deadline is not None and time.monotonic() >= deadline:
            return "timed_out"


def _start_watchdog(judge: int, pulse: Pulse) -> int:
    """Fork the watchdog of the command. Returns a descriptor of its process."""
    from evaluators.process.watchdog import watch  # noqa: PLC0415 - needed for judges that time only

    def work() -> NoReturn:
        try:
            os.closerange(0, _MAX_FDS)
            watch(judge, pulse)
        finally:
            os._exit(0)

    return os.pidfd_open(fork_child(work, close_fds=()))


def _hang_up(job: Job) -> None:
    """Shut down the command's connections, so that the other end notices even if the command does not die."""
    import socket  # noqa: PLC0415 - needed when a judge hangs only

    for fd in job["pass_fds"]:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _open_pulse(job: Job) -> Pulse | None:
    if not job["watched"]:
        return None
    _find_ours()
    from evaluators.process.watchdog import Pulse  # noqa: PLC0415 - needed for judges that time only

    return Pulse(".")


def _find_ours() -> None:
    """Make our own packages importable: a guard that is a script finds the standard library only."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120


def _reap(pid: int, patience_s: float = 2.0) -> tuple[int, resource.struct_rusage] | None:
    """Reap a process that was killed or has ended. None: it does not die."""
    select.select([os.pidfd_open(pid)], [], [], patience_s)
    reaped, status, usage = os.wait4(pid, os.WNOHANG)
    return (status, usage) if reaped else None


def main() -> int:
    """Run the job given as the first argument."""
    return run(json.loads(sys.argv[1]))


def run(job: Job, execute: Callable[[Job], None] = _execute) -> int:
    """Run a job; the command's process calls `execute`, which does not return, once it is bound and confined."""
    # Ctrl-C is for the parent, which lets work in flight finish.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    become_subreaper()
    log = _Log(job["log_path"], job["log_bytes"])
    begun = time.monotonic()
    pulse = _open_pulse(job)
    pid = _start(job, log.write_fd, execute)
    if log.write_fd >= 0:
        os.close(log.write_fd)
    how = _wait(pid, job, log, pulse, _start_watchdog(pid, pulse) if pulse else -1)
    wanted_core = how == "timed_out" and _wants_a_core(descendants_of(os.getpid()))
    if how != "ended":
        kill(pid)
    if how == "stalled":
        _hang_up(job)
    reaped = _reap(pid)
    undying = kill_descendants()
    if job["isolation"]:
        _take_back(".")
    if log.read_fd >= 0:
        log.drain()
    if how == "orphaned":
        import shutil  # noqa: PLC0415 - needed by orphans only, and a guard starts for every build

        shutil.rmtree(job["scratch"], ignore_errors=True)
        return 1
    report = {"how": how, "wall_s": time.monotonic() - begun, "wanted_core": wanted_core, "log_cut": log.cut}
    os.write(1, json.dumps(report | _used(reaped) | {"undying": undying}).encode() + b"\n")
    return 0


def _used(reaped: tuple[int, resource.struct_rusage] | None) -> dict[str, object]:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(reaped[0]) if reaped else None
    return {
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "cpu_s": spent.ru_utime + spent.ru_stime,
        "max_rss_bytes": reaped[1].ru_maxrss * 1024 if reaped else 0,
    }


if __name__ == "__main__":
    sys.exit(main())
