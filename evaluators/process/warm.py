"""Imports the packages that builds of a language, or judges, share, and forks a guard for each order. A script.

`python -P -m evaluators.process.warm MODULE FD PID`: MODULE has `prepare()` and `main(argument: str) -> int`; FD is a
socket, PID the parent. An order is a JSON object (folder, environment, `GuardJob`) with a socket for the guard's
standard input and output. The guard is that of `guard.py`, but the command's process does not execute a program: it is
forked after the imports and confined after the fork, then ends with the result of `main`, which gets the command's last
argument or the number of the order's second descriptor.

This process never loads a candidate. It must have one thread: threads do not survive a fork.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
from types import ModuleType
from typing import Any

from evaluators.process import guard
from evaluators.process.sandbox import claims, confine, profiles  # noqa: F401 - guards find them imported

ORDER_BYTES = 1 << 17


def main() -> int:
    """Serve until the socket's other end is closed."""
    # For the seconds until it reads the socket.
    guard.die_with_parent(int(sys.argv[3]))
    module = importlib.import_module(sys.argv[1])
    control = socket.socket(fileno=int(sys.argv[2]))
    module.prepare()
    # The socket tells from now on; the system means the thread that started this, which may end before the others.
    guard.live_on()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # guards are not waited for: their sockets say all
    # Children write to no page of what lies here only because a collection looked at it.
    gc.collect()
    gc.freeze()
    while True:
        order, fds, _, _ = socket.recv_fds(control, ORDER_BYTES, 2)
        if not order:
            return 0
        if os.fork() == 0:
            try:
                control.close()
                os._exit(_guard(module, json.loads(order), *fds))
            finally:
                os._exit(1)
        for fd in fds:
            os.close(fd)


def _guard(module: ModuleType, order: dict[str, Any], connection: int, passed: int | None = None) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (0, 1):
        os.dup2(connection, stream)
    os.close(connection)
    os.chdir(order["folder"])
    os.environ.update(order["environment"])
    job = {**order["job"], "pass_fds": [] if passed is None else [passed]}
    return guard.run(job, lambda job: _go_on(module, job["command"][-1] if passed is None else str(passed)))


def _go_on(module: ModuleType, argument: str) -> None:
    """Be the command: the guard's child, bound and confined already."""
    code = 1
    try:
        code = module.main(argument)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
