"""Shared by all runners: frames, mapped memory, huge pages and the heap. Stdlib only, because every start pays for it.

A runner maps the input memory read-only and the output memory writable, then answers fixed-size frames on a socket.
It knows no expected values, tolerances, seeds or clocks, and decides nothing.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

FRAME = struct.Struct("<4sIQQqQ")
"""Magic, operation, sequence number, nonce, status, and on a GPU the ns between the events around the call, else 0. In
a request the status is the number of the workload, and the last field that of the arrangement of its tensors."""
MAGIC = b"ksr1"
EMPTY, LOAD, CALL, ISOLATION, HOLD, GIVE, BURST, SEAL, PROFILE, REUSED = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
"""Operations. `HOLD`: keep what the last call returned, as its caller would; `GIVE`: hand over what is kept, again.
`BURST`: make calls one after the other, as other harnesses do; for comparisons with theirs, and never for a verdict.
`SEAL`: take away the means to start processes, where compilers needed them until now.
`PROFILE`: make a call, and write to the log what the GPU did in it.
`REUSED`: answer 1 if the last call returned memory that an earlier result lies in."""
PROFILED = b"ksearch profile: "
"""Before a line of the log: a JSON list of `Activity`, by `PROFILE`."""
RECORD_BYTES = 4 << 20
"""Largest size of this line."""
LOADED, NOT_LOADED, NO_ENTRY_POINT = 0, 2, 3
"""Answers to `LOAD`."""
BAD_OUTPUT, NO_KERNEL, LIBRARY_CALL = 0x1001, 0x1002, 0x10000
"""Answers to `CALL` besides 0 and what the candidate returns: what a module returned is no output; a Triton program
launched no kernel; from `LIBRARY_CALL` on, the index of the denied operator that was called is added."""
COMPILER, SHARED_LIBRARY, STATIC_RUNTIME = "torch.compile", "a shared library by ctypes", "torch's static runtime"
NUMPY = "numpy's linear algebra (write the product or transform as a kernel of your own)"
ARRAYS = "numpy on a tensor (use torch's operators; for sizes and indices `tolist()`)"
UNNAMED = (COMPILER, SHARED_LIBRARY, STATIC_RUNTIME, NUMPY, ARRAYS)
"""Denied besides operators; their indices follow."""

_PR_SET_PDEATHSIG = 1
_IOLBF = 1
"""Of stdio.h, in glibc and musl: flushed at line ends."""

Called: TypeAlias = Mapping[int, Sequence[Callable[[], int]]]
"""Calls on each workload that was loaded, by its number and arrangement: each returns 0 if it went well."""
Span: TypeAlias = Callable[[Callable[[], int]], tuple[int, int]]
_Made = TypeVar("_Made")


def call_untimed(call: Callable[[], int]) -> tuple[int, int]:
    """Make a call; its time is 0."""
    return call(), 0


def serve(
    control: int,
    nonce: int,
    load: Callable[[int], tuple[int, Called]],
    span: Span = call_untimed,
    *,
    isolation: int = 0,
    others: Mapping[int, Callable[[], int]] = {},
    ways: Mapping[int, Callable[[Callable[[], int]], int]] = {},
) -> None:
    """Answer frames until the judge is gone.

    `load` loads the candidate for a workload, or for all, and returns a status and the calls; `span` makes a call and
    returns its status and time in ns; `others` handle further operations, `ways` are further ways to make a call.
    """
    calls: Called = {}
    while True:
        frame = os.read(control, FRAME.size)
        if len(frame) != FRAME.size:
            return
        _, operation, sequence, _, workload, arrangement = FRAME.unpack(frame)
        status = span_ns = 0
        if operation in {CALL, EMPTY}:
            status, span_ns = span(calls[workload][arrangement] if operation == CALL else nothing)
        elif operation == LOAD:
            status, calls = load(workload)
        elif operation == ISOLATION:
            status = isolation
        elif operation in ways:
            status = ways[operation](calls[workload][arrangement])
        elif operation in others:
            status = others[operation]()
        os.write(control, FRAME.pack(MAGIC, operation, sequence, nonce, status, span_ns))


def arranged(placed: Sequence[Mapping[str, Any]], view: Callable[[int, int], _Made]) -> list[list[_Made]]:
    """Return the tensors of a workload in each arrangement, all made now; `view` makes one from index and offset."""
    rows: list[list[_Made]] = []
    for index, tensor in enumerate(placed):
        made = {at: view(index, at) for at in tensor["offsets"]}
        rows.append([made[at] for at in tensor["offsets"]])
    count = max(map(len, rows), default=1)
    return [[row[number % len(row)] for row in rows] for number in range(count)]


def nothing() -> int:
    """Be an empty call."""
    return 0


def bind_to_judge(judge_pid: int) -> None:
    """End this process when the judge ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != judge_pid:
        os._exit(1)


def print_by_lines() -> None:
    """Flush C's stdout at line ends: a candidate's process is killed and never flushes."""
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, 0)


def map_areas(spec: dict[str, int]) -> dict[str, int]:
    """Map the judge's memory. Returns the addresses of `inputs`, read-only unless private, and of `outputs`."""
    private = bool(spec["private_inputs"])
    areas = {
        "inputs": map_shared(spec["inputs_fd"], spec["inputs_bytes"], writable=False, private=private),
        "outputs": map_shared(spec["outputs_fd"], spec["outputs_bytes"], writable=True),
    }
    os.close(spec["inputs_fd"])
    os.close(spec["outputs_fd"])
    return areas


_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Have malloc reuse freed memory instead of giving it back to the kernel.

    By default chance decides whether each eager result costs thousands of page faults (seen: 1.0 or 6.6 ms for the same
    call). Reference and candidates always get the good case.
    """
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_TRIM_THRESHOLD, -1)
    libc.mallopt(_M_MMAP_MAX, 0)


HUGE_BYTES = 2 << 20
HEAP_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Has glibc's malloc ask for huge pages (2.35 and later; others take no notice). It is read when a program starts."""

_PROT_NONE, _PROT_READ, _PROT_WRITE = 0, 1, 2
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 0x01, 0x02, 0x10, 0x20
_MAP_NORESERVE, _MAP_POPULATE = 0x4000, 0x8000
_MADV_COLLAPSE = 25
"""Linux 6.1."""


def rounded(size_bytes: int) -> int:
    """Round up to whole huge pages, unless the size is much smaller than one."""
    return size_bytes if size_bytes < HUGE_BYTES // 2 else -(-size_bytes // HUGE_BYTES) * HUGE_BYTES


def map_shared(fd: int, size_bytes: int, *, writable: bool, private: bool = False) -> int:
    """Map a file at a huge page boundary, populated. Returns the address."""
    around = size_bytes + HUGE_BYTES
    begin = _map(None, around, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1)
    address = -(-begin // HUGE_BYTES) * HUGE_BYTES
    protection = _PROT_READ | (_PROT_WRITE if writable or private else 0)
    flags = (_MAP_PRIVATE if private else _MAP_SHARED) | _MAP_FIXED | _MAP_POPULATE
    _map(address, size_bytes, protection, flags, fd)
    end = -(-(address + size_bytes) // os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PAGE_SIZE")
    unmap(begin, address - begin)
    unmap(end, begin + around - end)
    return address


def unmap(address: int, size_bytes: int) -> None:
    """Unmap a mapping, or a part of one."""
    if size_bytes > 0:
        _libc().munmap(address, size_bytes)


def collapse(fd: int, size_bytes: int, *, is_new: bool = True) -> bool:
    """Ask the kernel to back a memfd with huge pages; `is_new`: it holds nothing yet. Returns False if it refuses."""
    address = map_shared(fd, size_bytes, writable=True)
    if is_new:
        # First written to, then collapsed: holes have no pages.
        ctypes.memset(address, 0, size_bytes)
    is_huge: bool = _libc().madvise(address, size_bytes, _MADV_COLLAPSE) == 0
    unmap(address, size_bytes)
    return is_huge


def _map(address: int | None, size_bytes: int, protection: int, flags: int, fd: int) -> int:
    found = _libc().mmap(address, size_bytes, protection, flags, fd, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "cannot map memory")
    return int(found)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *3 * (ctypes.c_int,), ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return libc
