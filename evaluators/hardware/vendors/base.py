"""The evaluator's interface to a vendor's GPUs, beyond torch.

A vendor is a package beside this module, such as `nvidia`, with these modules: `driver` (`Context`, `SharedMemory`,
`SpanClock`, `Hold`, `attach`, as below), `facts` (`gpu_facts`), `probe` (`ails`), `tensors` (`view_memory`); and
optionally `activities`, for profiles. `tests/evaluators/hardware/vendors/contract.py` tests these promises on a host
with a GPU of that vendor; docs/design/0011-vendors.md lists the other needs of a new vendor. Runners import `driver`
without torch, so it needs nothing but the stdlib.
"""

from __future__ import annotations

from typing import Protocol


class DeviceContext(Protocol):
    """This process's context on the first visible GPU, shared with torch in the same process."""

    @property
    def l2_bytes(self) -> int:
        """The size of its last-level cache."""

    def synchronize(self) -> None:
        """Wait for all work of this process, on all streams, but not for other processes."""

    def make_stream(self) -> int:
        """Return a stream for torch's `ExternalStream`, ordered with the default stream in both directions.

        So a candidate that ignores its stream is timed by it, too.
        """

    def keep_freed_memory(self) -> None:
        """Keep freed memory for stream-ordered allocations, if the driver would return it at each wait."""

    def forget_persisting_l2(self) -> None:
        """Drop persisting cache lines, so that none survives an L2 flush."""


class SharedArea(Protocol):
    """GPU memory that another process can map by a descriptor, also from another process or user namespace."""

    fd: int
    size_bytes: int
    """At least the requested size; the value for `attach`."""
    address: int
    """Address in this process. It stays mapped until this process ends, whatever other processes do."""


class Clock(Protocol):
    """Two points of a stream and the time between them, by the GPU's clock, to a microsecond or finer.

    The judge's timing (`evaluators/judge/time/gpu_cover.py`) relies on this: a GPU works for one process at a time, in
    turns. A process with a request during the judge's own work waits for its turn; its work then runs undisturbed from
    its first point to its last, so that no wait is in the time.
    """

    def begin(self) -> None:
        """Queue the first point."""

    def end(self) -> None:
        """Queue the second point."""

    def elapsed_ns(self) -> int:
        """Return the time between both, which have been reached."""


class Hold(Protocol):
    """Keeps the GPU busy for this process."""

    def begin(self, span_ns: int) -> None:
        """Queue work of this duration on the default stream, accurate to some microseconds at any clock rate."""

    def longest_gap_ns(self) -> int:
        """Wait for it. Returns the longest time that another process had the GPU meanwhile; alone, below 100 us."""


class Facts(Protocol):
    """The driver's facts about a GPU."""

    @property
    def name(self) -> str:
        """Its name for people: `NVIDIA H200`. The table of peaks (`evaluators/hardware/gpus.toml`) is by names."""

    @property
    def uuid(self) -> str:
        """Identifier that does not depend on the GPU's number; leases use it."""

    @property
    def arch(self) -> str:
        """Its name for compilers: `sm_90`. An artifact is for one."""

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak bandwidth of its memory."""
