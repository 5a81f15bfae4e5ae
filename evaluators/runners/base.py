"""What all runners share: the frames they answer, their limits, the memory they map. Stdlib only: every start pays.

A runner maps the input memory read-only and the output memory writable, then answers fixed-size frames on a socket:
empty calls, the loading of the candidate, and calls. It knows neither expected values nor tolerances, seeds or clocks;
it decides nothing. What the candidate prints goes to a bounded file.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Callable

FRAME = struct.Struct("<4sIQQq")
"""Magic, operation, sequence number, nonce, status."""
MAGIC = b"ksr1"
EMPTY, LOAD, CALL = 1, 2, 3
LOADED, NOT_LOADED, NO_ENTRY_POINT = 0, 2, 3
"""Answers to `LOAD`."""

_PR_SET_PDEATHSIG = 1
_MAP_SHARED, _MAP_PRIVATE, _MAP_POPULATE = 0x01, 0x02, 0x8000
_PROT_READ, _PROT_WRITE = 1, 2


def serve(control: int, nonce: int, load: Callable[[], tuple[int, Callable[[], int]]]) -> None:
    """Answer frames until the judge is gone.

    Args:
        control: the socket's descriptor.
        nonce: the judge's, sent back in every frame.
        load: loads the candidate. Returns a status, and what a call is, which returns 0 if it went well.
    """
    call: Callable[[], int] = not_loaded
    while True:
        frame = os.read(control, FRAME.size)
        if len(frame) != FRAME.size:
            return
        _, operation, sequence, _, _ = FRAME.unpack(frame)
        status = 0
        if operation == CALL:
            status = call()
        elif operation == LOAD:
            status, call = load()
        os.write(control, FRAME.pack(MAGIC, operation, sequence, nonce, status))


def not_loaded() -> int:
    """Stand in for a call before there is one."""
    raise RuntimeError("called before it was loaded")


def bind_to_judge(judge_pid: int) -> None:
    """End with the judge, whatever ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != judge_pid:
        os._exit(1)


def restrict(*, memory_bytes: int, file_bytes: int) -> None:
    """Bind this process to its limits: address space, and the size of any file that it writes."""
    # Writing past the limit fails instead of killing: a candidate may print as much as it likes, the rest is dropped.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for which, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        hard = resource.getrlimit(which)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (bound, bound))


def map_areas(spec: dict[str, int]) -> dict[str, int]:
    """Map the judge's memory. Returns the addresses of `inputs`, read-only unless private, and of `outputs`."""
    private = bool(spec["private_inputs"])
    return {
        "inputs": _map(spec["inputs_fd"], spec["inputs_bytes"], writable=False, private=private),
        "outputs": _map(spec["outputs_fd"], spec["outputs_bytes"], writable=True, private=False),
    }


def _map(fd: int, size: int, *, writable: bool, private: bool) -> int:
    """Map shared memory. Returns its address."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    protection = _PROT_READ | (_PROT_WRITE if writable or private else 0)
    flags = (_MAP_PRIVATE if private else _MAP_SHARED) | _MAP_POPULATE
    address = libc.mmap(None, size, protection, flags, fd, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map the shared memory")
    os.close(fd)
    return int(address)
