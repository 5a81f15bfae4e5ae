"""Imports an evaluator file once and forks a process for every candidate that it is to score. Stdlib only; a script.

Run as `python -P zygote.py ARGUMENTS`, a JSON object with the fields of `Arguments`. Jobs come over the control socket,
each as one byte with a socket of its own (SCM_RIGHTS) that a `warden` takes over. When the control socket closes, this
process waits for its wardens (their sockets close with it), removes its folder and ends.

Effects of a candidate on the evaluator's module end with its process: each one sees it freshly imported. Where
importing starts threads (which a fork would leave behind, perhaps holding locks), the import is done anew in each
candidate's process instead.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import select
import shutil
import socket
import sys
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent


class Arguments:
    """Arguments of a zygote."""

    def __init__(self, text: str) -> None:
        fields = json.loads(text)
        self.control_fd = int(fields["control_fd"])
        self.parent_pid = int(fields["parent_pid"])
        self.evaluator: str = fields["evaluator"]
        self.digest: str = fields["digest"]
        """blake2b-128 (hex) of the evaluator file's bytes."""
        self.folder: str = fields["folder"]
        """Scratch folder of all candidates; removed at the end."""
        self.is_cold = bool(fields.get("is_cold"))


def _load(path: Path) -> ModuleType:
    """Load one of our own files without its package, since the import path is that of the user's evaluator."""
    name = f"ksearch_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


guard = _load(_HERE.parent / "process" / "guard.py")
scoring = _load(_HERE / "scoring.py")
warden = _load(_HERE / "warden.py")


def main() -> int:
    """Serve until the control socket closes."""
    arguments = Arguments(sys.argv[1])
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)  # Ctrl-C is for the one who started this, who lets work in flight finish
    guard.die_with_parent(arguments.parent_pid)
    control = socket.socket(fileno=arguments.control_fd)
    with control:
        try:
            text = _read_evaluator(arguments)
            evaluate = None if arguments.is_cold else scoring.load_evaluator(arguments.evaluator, text)
        except scoring.UnusableEvaluatorError as error:
            _say(control, {"unusable": str(error)})
            return 1
        if _has_threads():
            _start_cold(control)
        guard.live_on()  # from here on the control socket says when to end, and in which order
        gc.collect()
        gc.freeze()  # so that collections in forked processes leave the shared pages alone
        _say(control, {"is_cold": arguments.is_cold})
        _serve(control, lambda: evaluate or scoring.load_evaluator(arguments.evaluator, text))
    shutil.rmtree(arguments.folder, ignore_errors=True)
    return 0


def _read_evaluator(arguments: Arguments) -> str:
    try:
        content = Path(arguments.evaluator).read_bytes()
    except OSError as error:
        raise scoring.UnusableEvaluatorError(f"it cannot be read: {error.strerror}") from error
    if blake2b(content, digest_size=16).hexdigest() != arguments.digest:
        raise scoring.UnusableEvaluatorError("it has changed since the run was started")
    return content.decode()


def _has_threads() -> bool:
    return len(os.listdir("/proc/self/task")) > 1  # noqa: PTH208 - counted, not walked


def _start_cold(control: socket.socket) -> None:
    """Begin again, without importing the evaluator here."""
    fields = json.loads(sys.argv[1]) | {"is_cold": True}
    control.set_inheritable(True)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-1], json.dumps(fields)])  # noqa: S606 - no shell


def _say(control: socket.socket, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")


def _serve(control: socket.socket, evaluate: object) -> None:
    """Fork a warden for each socket that arrives, and reap those that have ended."""
    wardens: dict[int, int] = {}
    is_open = True
    while is_open or wardens:
        ready, _, _ = select.select([*wardens, *([control.fileno()] if is_open else [])], [], [])
        for fd in wardens.keys() & set(ready):
            os.waitpid(wardens.pop(fd), 0)
            os.close(fd)
        if control.fileno() in ready:
            received, fds, _, _ = socket.recv_fds(control, 1, 1)
            is_open = bool(received)
            for fd in fds:
                pid = _fork_warden(control, fd, [*wardens], evaluate)
                wardens[os.pidfd_open(pid)] = pid


def _fork_warden(control: socket.socket, job_fd: int, others: list[int], evaluate: object) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(job_fd)
        return pid
    try:
        control.close()
        for fd in others:
            os.close(fd)
        with socket.socket(fileno=job_fd) as connection:
            warden.watch(connection, guard, lambda program: scoring.score(evaluate, program))
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
