"""Shared by all runners: the frames they answer, their limits, the memory they map. Stdlib only: every start pays.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from evaluators.runners.pages import map_shared

FRAME = struct.Struct("<4sIQQqQ")
"""Magic, operation, sequence number, nonce, status, and on a GPU the ns between the events around the call, else 0. In
a request the status is the number of the workload whose tensors are meant, and the last field that of the arrangement
in which they lie."""
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
"""Such a line is no longer."""
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
_Made = TypeVar("_Made")


def serve(
    control: int,
    nonce: int,
    load: Callable[[int], tuple[int, Called]],
    span: Callable[[Callable[[], int]], tuple[int, int]] = lambda call: (call(), 0),
    *,
    isolation: int = 0,
    others: Mapping[int, Callable[[], int]] = {},
    ways: Mapping[int, Callable[[Callable[[], int]], int]] = {},
) -> None:
    """Answer frames until the judge is gone.

    Args:
        control: the socket's descriptor.
        nonce: the judge's, sent back in every frame.
        load: loads the candidate for a workload, or for all. Returns a status, and what can be called from now on.
        span: makes a call. Returns its status, and its time in ns by the clock of the device, 0 where there is none.
        isolation: the layers that this process is behind; see `evaluators/sandbox/claims.py`.
        others: what else it does when it is asked, by operation.
        ways: how else calls are made, by operation: each is given a call, and returns a status.
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
    """Return the tensors of a workload in each arrangement, all made now and not in a call.

    Args:
        placed: `Placed` of each tensor.
        view: makes a tensor, given its index and an offset; asked once for each place.
    """
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
    """End with the judge, whatever ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != judge_pid:
        os._exit(1)


def restrict_files(file_bytes: int) -> None:
    """Bind this process to the size of any file that it writes."""
    # Writing past the limit fails instead of killing: a candidate may print as much as it likes, the rest is dropped.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)


def print_by_lines() -> None:
    """Have C's `printf` hand over each line at once: a candidate's process is killed, and never flushes."""
    libc = ctypes.CDLL(None)
    libc.setvbuf(ctypes.c_void_p.in_dll(libc, "stdout"), None, _IOLBF, 0)


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (bound, bound))


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
