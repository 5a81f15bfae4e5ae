"""A process that has imported what builds of a language, or judges, need, and forks a guard for each. A script.

`python -P -m evaluators.process.warm MODULE FD PID`: MODULE has `prepare()` and `main(argument: str) -> int`; FD is a
socket, PID the parent. Each order is a JSON object (`WarmOrder` in `warmed.py`) with a descriptor: a socket that stands
for the guard's standard input and output. The guard is that of `guard.py`, but the command's process goes on in here
instead of executing a program: forked after the imports, confined after the fork. It ends with the result of `main`,
which gets the command's last argument or the number of the order's second descriptor.

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
from collections.abc import Mapping
from types import ModuleType

from evaluators.process import guard
from evaluators.sandbox import claims, confine, profiles  # noqa: F401 - what a guard imports, it finds imported

ORDER_BYTES = 1 << 17


def main() -> int:
    """Serve until the socket's other end is closed."""
    # Until it looks at the socket, which is seconds from here, it would not notice that who started it was killed.
    guard.die_with_parent(int(sys.argv[3]))
    module = importlib.import_module(sys.argv[1])
    control = socket.socket(fileno=int(sys.argv[2]))
    module.prepare()
    # The socket says so from now on. The system means the thread that started it, and that may end before the others.
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


def _guard(module: ModuleType, order: Mapping[str, object], connection: int, passed: int | None = None) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for stream in (0, 1):
        os.dup2(connection, stream)
    os.close(connection)
    os.chdir(str(order["folder"]))
    environment, job = order["environment"], order["job"]
    os.environ.update(environment if isinstance(environment, dict) else {})
    held = {"pass_fds": [] if passed is None else [passed]}
    return guard.run((job if isinstance(job, dict) else {}) | held, lambda told: _go_on(module, told, passed))


def _go_on(module: ModuleType, job: Mapping[str, object], passed: int | None) -> None:
    """Be the command: the guard's child, bound and confined already."""
    command = job["command"]
    last = str(command[-1]) if isinstance(command, list) else ""
    code = 1
    try:
        code = module.main(last if passed is None else str(passed))
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
