"""The evaluator's interface to a vendor's GPUs, beyond torch.

A vendor is a package beside this module, such as `nvidia`. Each has these modules: `driver` (`Context`, `SharedMemory`,
`SpanClock`, `Hold`, `attach`, as below), `facts` (`gpu_facts`), `probe` (`ails`), `tensors` (`view_memory`);
`activities`, for profiles, it may do without. `tests/evaluators/hardware/vendors/contract.py` tests these promises on a
host with a GPU of that vendor; docs/design/0011-vendors.md lists the other needs of a new vendor. Runners import
`driver` without torch, so it needs nothing but the stdlib.
"""

from __future__ import annotations

from typing import Protocol


class DeviceContext(Protocol):
    """This process's hold on the first visible GPU, the one that torch in the same process has."""

    @property
    def l2_bytes(self) -> int:
        """The size of its last-level cache."""

    def synchronize(self) -> None:
        """Wait for all work of this process, on all streams. Another process's work is not waited for."""

    def make_stream(self) -> int:
        """Return a stream as torch's `ExternalStream` takes it, ordered with the default stream in both directions.

        A candidate that ignores the stream it is given is timed by it all the same.
        """

    def keep_freed_memory(self) -> None:
        """Have stream-ordered allocations keep what is freed, if the driver would give it back at each wait."""

    def forget_persisting_l2(self) -> None:
        """Let no cache line survive an L2 flush because a process asked for it."""


class SharedArea(Protocol):
    """Memory of the GPU that another process can map by a descriptor, also from another process or user namespace."""

    fd: int
    size_bytes: int
    """At least the requested one; the value for `attach`."""
    address: int
    """Here. It stays mapped until this process ends, whatever becomes of others."""


class Clock(Protocol):
    """Two points of a stream and the time between them, by the GPU's clock, to a microsecond or finer.

    The judge's way to time (`evaluators/judge/time/gpu_cover.py`) rests on this: a GPU works for one process at a time,
    by turns. A process that asks while the judge's own work goes on waits for its turn; its work then goes on
    undisturbed from its first point to its last, so that no wait is in the time.
    """

    def begin(self) -> None:
        """Queue the first point."""

    def end(self) -> None:
        """Queue the second point."""

    def elapsed_ns(self) -> int:
        """Return the time between both, which have been reached."""


class Hold(Protocol):
    """Keeps the GPU for this process."""

    def begin(self, span_ns: int) -> None:
        """Queue on the default stream what takes so long, to some microseconds, whatever clocks do, and little else."""

    def longest_gap_ns(self) -> int:
        """Wait for it. Returns for how long at most another process had the GPU meanwhile; alone, below 100 us."""


class Facts(Protocol):
    """The driver's facts about a GPU."""

    @property
    def name(self) -> str:
        """As people know it: `NVIDIA H200`. The table of peaks (`evaluators/hardware/gpus.toml`) is by names."""

    @property
    def uuid(self) -> str:
        """The same, whatever number the GPU has: leases are by it."""

    @property
    def arch(self) -> str:
        """As compilers call it: `sm_90`. Artifacts are for one."""

    @property
    def memory_bytes_per_s(self) -> float:
        """Peak bandwidth of its memory."""
