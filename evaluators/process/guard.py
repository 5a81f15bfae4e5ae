"""Runs one command so that nothing of it outlives its parent or its limits. A script for `python -I -S`; stdlib only.

Its argument is a JSON object with the fields of `DEFAULTS`.

The guard's standard input is a pipe that its parent holds open and never writes to. When it ends (the parent closed
it, or died of whatever), the guard kills every process that descends from the command, reaps them, removes `scratch`,
and ends. It is a subreaper: a grandchild in a session of its own is still a descendant. When the command ends by
itself, the rest of its descendants is killed too, and one JSON line on standard output says how it went (`report`).
What is killed is demoted first, every thread of it: at real-time priority a thread may spin in the kernel for ever.

Covered: parents that are killed, commands that hang, spawn, print or eat memory without end; a confined command also
cannot reach its guard. Not covered: a command that is not confined and kills its guard; then only the direct child is
killed (PR_SET_PDEATHSIG).
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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluators.process.watchdog import Pulse


# ruff: noqa: PTH123, PTH208 - pathlib would add a third to the start-up of every build


_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MAX_FDS = 1 << 16

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
    "isolation": "",  # `auto`: confined to this folder (`evaluators/sandbox`), `strict`: or not run; empty: neither
    "reads": [],  # what it may read besides the system's files, if it is confined
    "scratch": "",  # folder that is removed if the parent dies
    "watched": False,  # the command shows its progress (`watchdog.py`), and is killed when it makes none
}


def become_subreaper() -> None:
    """Make this process the parent of orphans among its descendants, instead of init."""
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


def fork_child(work: Callable[[], int], *, close_fds: Sequence[int]) -> int:
    """Fork a child with a process group of its own, which ends with the thread that calls this. Returns its id.

    Args:
        work: done by the child, which ends with its result.
        close_fds: descriptors of this process that the child must not hold open.
    """
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
    """Return the ids of all living processes below `pid`; of those in `but`, neither they nor what is below them."""
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
            if child not in found and child not in but:
                found.add(child)
                pending.append(child)
    return found


def kill_descendants(keep: frozenset[int] = frozenset(), *, patience_s: float = 2.0) -> list[str]:
    """Demote, kill and reap everything below this process, which must be a subreaper.

    Args:
        keep: children to leave alone, with all that is below them.
        patience_s: how long to try.

    Returns:
        What would not die, as people name processes; nothing if all is gone.
    """
    deadline = time.monotonic() + patience_s
    while True:
        # All processes of the host are looked at for this, so once, however many are kept.
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
    """Demote all threads of a process, then kill it; nothing if it is gone."""
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
    """Say whether a thread of these processes could go on at once, if it had a core (R) or a page from a disk (D)."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] in (b"R", b"D"):
                        return True
    return False


def _let_it_end(pid: int) -> None:
    """Give a process the means to end soon, and take from it what may keep it from that: its priority.

    One that gives way to others is given normal priority: dying takes time on a core, too.
    """
    # The main thread first, without a look at /proc, for which a thread in the kernel may be waiting.
    for thread in (pid, *_threads_of(pid)):
        with contextlib.suppress(OSError):  # without privileges nobody gets out of SCHED_IDLE
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, os.sched_getaffinity(0))


def _threads_of(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(f"/proc/{pid}/task"))


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


def _start(job: dict[str, object], log_fd: int, execute: Callable[[dict[str, object]], None]) -> int:
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


def _execute(job: dict[str, object]) -> None:
    for fd in _passed(job):
        os.set_inheritable(fd, True)
    command = job["command"]
    arguments = [str(part) for part in command] if isinstance(command, list) else []
    os.execvp(arguments[0], arguments)  # noqa: S606 - there is no shell


def _passed(job: dict[str, object]) -> list[int]:
    passed = job["pass_fds"]
    return passed if isinstance(passed, list) else []


def _confine(job: dict[str, object]) -> None:
    """Enter the sandbox that the job asks for; this folder is all that may be written."""
    if not job["isolation"]:
        return
    _find_ours()
    from evaluators.sandbox import profiles  # noqa: PLC0415 - needed for builds only, not for judges
    from evaluators.sandbox.claims import missing_for_strict  # noqa: PLC0415
    from evaluators.sandbox.confine import confine  # noqa: PLC0415

    reads = job["reads"]
    profile = profiles.build(os.getcwd(), reads=tuple(reads) if isinstance(reads, list) else ())  # noqa: PTH109
    missing = missing_for_strict(confine(profile).claim)
    if job["isolation"] == "strict" and missing:
        raise OSError(f"--isolation strict, but a build here lacks {', '.join(missing)}")


def _take_back(folder: str) -> None:
    """Own again what a confined command, which ran as another user, has left."""
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


def _wait(pid: int, job: dict[str, object], log: _Log, pulse: Pulse | None, dog: int) -> str:
    """Wait for the command, reading its output. Returns `ended`, `timed_out`, `stalled` or `orphaned`."""
    wall_s = float(str(job["wall_s"]))
    deadline = time.monotonic() + wall_s if wall_s > 0 else None
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

    parent = os.getpid()
    pid = os.fork()
    if pid:
        return os.pidfd_open(pid)
    try:
        die_with_parent(parent)
        os.closerange(0, _MAX_FDS)
        watch(judge, pulse)
    finally:
        os._exit(0)


def _hang_up(job: dict[str, object]) -> None:
    """Shut down the command's connections: the other end sees it, even if the command does not die."""
    import socket  # noqa: PLC0415 - needed when a judge hangs only

    for fd in _passed(job):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def _open_pulse(job: dict[str, object]) -> Pulse | None:
    if not job["watched"]:
        return None
    _find_ours()
    from evaluators.process.watchdog import Pulse  # noqa: PLC0415 - needed for judges that time only

    return Pulse(".")


def _find_ours() -> None:
    """Have our own packages be found; a guard that is a script finds the standard library alone."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120


def _reap(pid: int, patience_s: float = 2.0) -> tuple[int, resource.struct_rusage] | None:
    """Wait for the end of a process that was killed or has ended, and reap it. None: it would not die."""
    select.select([os.pidfd_open(pid)], [], [], patience_s)
    reaped, status, usage = os.wait4(pid, os.WNOHANG)
    return (status, usage) if reaped else None


def main() -> int:
    """Run the job given as the first argument."""
    return run(json.loads(sys.argv[1]))


def run(told: Mapping[str, object], execute: Callable[[dict[str, object]], None] = _execute) -> int:
    """Run a job; see above.

    Args:
        told: fields of `DEFAULTS`.
        execute: what the command's process does, once it is bound and confined; it does not return.
    """
    job = DEFAULTS | dict(told)
    # Ctrl-C is for the one who started this, who lets work in flight finish.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    become_subreaper()
    log = _Log(str(job["log_path"]), int(str(job["log_bytes"])))
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
        _remove(str(job["scratch"]))
        return 1
    report = {"how": how, "wall_s": time.monotonic() - begun, "wanted_core": wanted_core, "log_cut": log.cut}
    os.write(1, json.dumps(report | _used(reaped) | {"undying": undying}).encode() + b"\n")
    return 0


def _used(reaped: tuple[int, resource.struct_rusage] | None) -> dict[str, object]:
    """Return how the command ended and what it used, for the report; None: it would not die."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = os.waitstatus_to_exitcode(reaped[0]) if reaped else None
    return {
        "exit_code": code if code is not None and code >= 0 else None,
        "signal": -code if code is not None and code < 0 else None,
        "cpu_s": spent.ru_utime + spent.ru_stime,
        "max_rss_bytes": reaped[1].ru_maxrss * 1024 if reaped else 0,
    }


def _remove(folder: str) -> None:
    if folder:
        import shutil  # noqa: PLC0415 - needed by orphans only, and a guard starts for every build

        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
