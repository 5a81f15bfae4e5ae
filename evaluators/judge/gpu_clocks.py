"""Two clocks for the same calls on a GPU: the events of the side's process, and the judge's own around them.

How what the judge's clock says beyond the events is believed, see `gpu_workload_timing.py`. Times in ns.
"""

from __future__ import annotations

from statistics import median, quantiles

from evaluators.judge.gpu_cover import IDLE
from evaluators.judge.side import Answer

_SLACK_NS = 12_000
"""By how much the judge's clock may exceed a candidate's events more than those of an empty call: noise."""
_SLACK_SHARE = 0.03
"""The same, of the candidate's time."""
_FIRST_SLACK_NS, _FIRST_SLACK_SHARE = 60_000, 0.05
"""The same for empty calls from before the candidate was loaded. Seen on an H200 with honest kernels: up to 50 us."""
_IDLE_SHARE = 0.2
"""Of the time of a call on an idle GPU, what the judge's clock may say beyond that before a candidate is refused; it is
added to its time. Such calls keep the host at work, which comes back to its next instructions with cold caches: seen on
an H200 with honest ones, up to 8 % (`eigh` of small matrices)."""

_USUAL_SHARE = 0.1
"""Of the candidate's time: more of it is not usual, however much a long reference exceeds its own."""


class Unloaded:
    """Empty calls of a process in which the candidate is not there yet; they hand no outputs over."""

    def __init__(self, take_ns: float) -> None:
        """Begin.

        Args:
            take_ns: what the judge's own copy of outputs takes in each of these calls.
        """
        self._take_ns = take_ns
        self._around: dict[int, list[int]] = {}

    def add(self, sweeps: int, answer: Answer) -> None:
        """Note what the judge's clock says beyond the events of an empty call behind so many sweeps."""
        self._around.setdefault(sweeps, []).append(answer.elapsed_ns - answer.span_ns)

    def around_ns(self, sweeps: int) -> float:
        """Return the lower quartile of that, the judge's copy taken off."""
        return lower_quartile(self._around[sweeps]) - self._take_ns


class Seen:
    """What was measured of one candidate on one workload."""

    def __init__(self, unloaded: Unloaded, copy_ns: float, take_ns: float) -> None:
        """Begin.

        Args:
            unloaded: empty calls of its process from before it was loaded.
            copy_ns: what handing over a candidate's outputs takes behind its second event.
            take_ns: what the judge's own copy of them takes.
        """
        self._unloaded, self._copy_ns, self._take_ns = unloaded, copy_ns, take_ns
        self.candidate: list[int] = []
        self.reference: list[int] = []
        self.second: list[int] = []
        """Of the second baseline."""
        self._around: dict[str, list[int]] = {}
        self.sweeps = 0
        """That its calls begin behind; 0: on an idle GPU."""
        self.is_entered = False
        """Whether that was found out."""
        self.rechecks = 0
        """Pairs that were run only to see whether its events are to be believed."""

    def add(self, what: str, answer: Answer) -> None:
        """Note what the judge's clock says beyond the events of a call, or of an empty one."""
        self._around.setdefault(what, []).append(answer.elapsed_ns - answer.span_ns)

    def excess_ns(self, what: str, empty: str) -> float:
        """Return by how much calls exceed their events more than empty ones do, by the judge's clock.

        Lower quartiles are compared: whatever keeps a process waiting only adds, and work that goes on beside the
        events is there in every call.
        """
        return lower_quartile(self._around[what]) - lower_quartile(self._around[empty])

    @property
    def beyond_ns(self) -> float:
        """By how much the candidate's calls exceed their events more than empty ones do, by the judge's clock."""
        return self.excess_ns("call", "empty call")

    @property
    def beyond_first_ns(self) -> float:
        """The same, more than empty calls did before the candidate was loaded."""
        expected_ns = self._unloaded.around_ns(self.sweeps) + self._take_ns + self._copy_ns
        return lower_quartile(self._around["call"]) - expected_ns

    @property
    def unbelieved_ns(self) -> float:
        """By how much either is more than noise; below 0: neither is.

        On an idle GPU the reference's own calls say what is to be expected besides, as far as that is little.
        """
        span_ns = median(self.candidate)
        usual_ns = max(0.0, self.excess_ns("reference", "empty reference")) if self._is_idle else 0.0
        usual_ns = min(usual_ns, _USUAL_SHARE * span_ns)
        beyond_ns = self.beyond_ns - max(_SLACK_NS, _SLACK_SHARE * span_ns)
        beyond_first_ns = self.beyond_first_ns - max(_FIRST_SLACK_NS, _FIRST_SLACK_SHARE * span_ns)
        return max(beyond_ns, beyond_first_ns) - usual_ns

    @property
    def is_doubtful(self) -> bool:
        """Whether that is more than can be added to its time."""
        return self.unbelieved_ns > (_IDLE_SHARE * median(self.candidate) if self._is_idle else 0.0)

    def complaint(self, latency_us: float) -> str:
        """Say what is doubtful about a candidate whose events say that a call takes so many us."""
        return (
            f"its events say {latency_us:.1f} us, but by the judge's clock a call takes longer than that: by "
            f"{self.beyond_ns / 1000:.1f} us more than an empty one does, and {self.beyond_first_ns / 1000:.1f} us "
            "more than one before it was loaded, so work goes on beside or after them"
        )

    @property
    def added_share(self) -> float:
        """By which share the candidate's time is told longer than its events say."""
        return max(0.0, self.unbelieved_ns) / max(median(self.candidate), 1)

    @property
    def _is_idle(self) -> bool:
        return self.sweeps == IDLE


def lower_quartile(values: list[int]) -> float:
    """Return the lower quartile of at least two values."""
    return quantiles(values, n=4, method="inclusive")[0]
