"""Calls candidates that are Triton programs, by Triton's interpreter. A process per candidate, forked from a warm one.

Importing torch and triton costs a second or two, forking some milliseconds: so the judge starts this process once
(`python -m` of this, environment and descriptors as in `evaluators/judge/launching.py`), and it forks a runner for
each candidate. It never loads a candidate itself. It must have one thread, and has: threads do not survive a fork.

Each order is a JSON object (`RunnerSpec`) with four descriptors: control socket, inputs, outputs, log. The runner is
forked twice, so that it becomes a child of the judge, which is a subreaper; the answer is its process id.
The calling contract is that of `evaluators/languages/triton/contract.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import triton.language  # noqa: F401 - what candidates import, they find imported

from evaluators.runners.autotune import take_first_configurations
from evaluators.runners.base import (
    LOADED,
    NO_ENTRY_POINT,
    NOT_LOADED,
    bind_to_judge,
    map_areas,
    not_loaded,
    restrict,
    serve,
)
from evaluators.runners.program import NoEntryPointError, load_entry_point, tell_raised

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

READY = b"ready"
ORDER_BYTES = 1 << 17
ORDER_FDS = 4
_ADOPTION_S = 5.0
_LAST_WORDS_BYTES = 16 << 10
"""Of the log, kept for what the candidate raises."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_DTYPES = {
    (2, 32): torch.float32,
    (2, 64): torch.float64,
    (2, 16): torch.float16,
    (4, 16): torch.bfloat16,
    (0, 64): torch.int64,
    (0, 32): torch.int32,
    (0, 16): torch.int16,
    (0, 8): torch.int8,
    (1, 8): torch.uint8,
    (6, 8): torch.bool,
}
"""By DLPack's type code and bits."""


def main() -> int:
    """Serve one judge until it goes away."""
    control = socket.socket(fileno=int(sys.argv[1]))
    bind_to_judge(int(sys.argv[2]))
    torch.set_num_threads(1)
    take_first_configurations()
    # Children write to no page of what lies here only because a collection looked at it.
    gc.collect()
    gc.freeze()
    control.send(READY)
    while True:
        order, fds, _, _ = socket.recv_fds(control, ORDER_BYTES, ORDER_FDS)
        if not order:
            return 0
        control.send(str(_start(control, json.loads(order), fds)).encode())
        for fd in fds:
            os.close(fd)


def _start(control: socket.socket, spec: dict[str, int], fds: list[int]) -> int:
    """Fork a runner that has the judge for its parent. Returns its process id."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                os.close(reading)
                os.close(writing)
                _serve_candidate(spec, fds)
            finally:
                os._exit(1)
        with contextlib.suppress(OSError):  # it may have done so itself, and ended
            os.setpgid(pid, pid)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)
    pid = int(os.read(reading, 32))
    os.close(reading)
    return pid


def _serve_candidate(spec: dict[str, int], fds: list[int]) -> None:
    """Be a runner, to the end of the process."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    _await_adoption(spec["judge_pid"])
    bind_to_judge(spec["judge_pid"])
    control, inputs_fd, outputs_fd, log = fds
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    sys.stdout = sys.stderr = _Log(spec["file_bytes"] - _LAST_WORDS_BYTES).as_text()
    os.chdir(str(spec["folder"]))
    size_bytes = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * _PAGE_BYTES
    restrict(memory_bytes=size_bytes + spec["memory_bytes"], file_bytes=spec["file_bytes"])
    tensors = _tensors(spec, map_areas({**spec, "inputs_fd": inputs_fd, "outputs_fd": outputs_fd}))
    serve(control, spec["nonce"], lambda: _load(spec, tensors))
    os._exit(0)


def _await_adoption(judge_pid: int) -> None:
    deadline = time.monotonic() + _ADOPTION_S
    while os.getppid() != judge_pid and time.monotonic() < deadline:
        time.sleep(0.0005)


def _tensors(spec: Mapping[str, object], bases: dict[str, int]) -> list[torch.Tensor]:
    """Return the task's tensors, in the memory that was mapped: dense, on the CPU."""
    found: list[torch.Tensor] = []
    placed = spec["tensors"]
    for tensor in placed if isinstance(placed, list) else ():
        dtype = _DTYPES[tensor["code"], tensor["bits"]]
        count = 1
        for size in tensor["shape"]:
            count *= size
        address = bases[tensor["area"]] + tensor["offset"]
        memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
        found.append(torch.frombuffer(memory, dtype=dtype).view(tensor["shape"]))
    return found


def _load(spec: Mapping[str, object], tensors: list[torch.Tensor]) -> tuple[int, Callable[[], int]]:
    """Import the candidate. Returns a status, and what a call is."""
    program = str(spec["product"])
    folder = os.path.dirname(program)  # noqa: PTH120 - it is compared with file names of frames
    try:
        function = load_entry_point(program, str(spec["entry_point"]), len(tensors))
    except NoEntryPointError as error:
        _print(str(error))
        return NO_ENTRY_POINT, not_loaded
    except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
        _print(tell_raised(error, folder))
        return NOT_LOADED, not_loaded

    def call() -> int:
        try:
            function(*tensors)
        except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
            _print(tell_raised(error, folder))
            return 1
        return 0

    return LOADED, call


class _Log(io.RawIOBase):
    """Where the candidate prints: at most so many bytes, the rest is dropped without an error."""

    def __init__(self, left: int) -> None:
        self._left = left

    def as_text(self) -> io.TextIOWrapper:
        """Return it as a stream for text."""
        return io.TextIOWrapper(io.BufferedWriter(self), encoding="utf-8", errors="replace")

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        told = bytes(data)
        with contextlib.suppress(OSError):
            os.write(1, told[: max(0, self._left)])
        self._left -= len(told)
        return len(told)


def _print(text: str) -> None:
    """Write to the log, behind what the candidate printed."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"\n{text}\n".encode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main())
