"""What a GPU did in one call of a candidate: its kernels, by their time. A claim of the candidate's own process."""

from __future__ import annotations

from messages.base import Message


class ProfiledKernel(Message, frozen=True, kw_only=True):
    """All launches of one kernel in one call that have the same grid and block."""

    name: str
    """As its author wrote it, with the types of templates; `(copy)` and `(fill)` are the driver's own."""
    launches: int
    time_us: float
    """Of all of them together: the median over the calls that were recorded."""
    is_own: bool
    """Whether it is in what the candidate brought or built, and not in a library."""
    grid: tuple[int, int, int] = (0, 0, 0)
    """Blocks."""
    block: tuple[int, int, int] = (0, 0, 0)
    """Threads."""
    registers: int = 0
    """Per thread."""
    shared_bytes: int = 0
    """Per block."""
    local_bytes: int = 0
    """Per thread: spilled registers, and arrays that the compiler could not keep in registers."""
    occupancy: float = 0.0
    """Share of a multiprocessor's threads that can be there at once, by registers, shared memory and block size."""
    waves: float = 0.0
    """How often the GPU must be filled with blocks: 1.1 leaves it nine tenths idle in the second."""


class WorkloadProfile(Message, frozen=True, kw_only=True):
    """What a call comes to on one workload."""

    workload: str = ""
    """Empty where there is one."""
    span_us: float
    """From the first kernel's beginning to the last one's end: the median over the calls that were recorded."""
    busy_us: float
    """Of that, for how long the GPU worked: kernels that run beside each other count once."""
    kernels_us: float
    """The time of all kernels together."""
    own_us: float
    """Of that, the candidate's own kernels'."""
    kernels: tuple[ProfiledKernel, ...]
    """The longest first."""
    left_out: int = 0
    """Further kernels that are not told of."""

    @property
    def idle_share(self) -> float:
        """Share of the span in which the GPU did nothing for it."""
        return 1 - self.busy_us / self.span_us if self.span_us else 0.0

    @property
    def own_share(self) -> float:
        """Share of all kernels' time that is the candidate's own kernels'."""
        return self.own_us / self.kernels_us if self.kernels_us else 0.0
