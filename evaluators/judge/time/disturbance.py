"""Signs that a host or a candidate disturbs a measurement: lost cores, waiting, a slow reference.

`Watch` reads the run-queue time of a side's threads (`/proc/PID/task/*/schedstat`) and the time that the hypervisor
took from its cores (`steal` in `/proc/stat`). Threads of a side with more busy threads than cores wait for each other,
so its queue is not read. Pressure (`/proc/pressure/cpu`) would count our own idle loops and checks.

`Control` times the reference against itself once per judge. A reference that is slower beside a candidate than before,
and as fast as ever once the candidate is dead, was slowed down: its pairs do not count.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from pathlib import Path
from statistics import median, quantiles

import msgspec

from evaluators.judge.time.sampling import Pair, Timing, TimingPolicy, time_pairs

_SHARE = 0.1
"""Share of a call's time below which waiting is ignored."""
WAITING_NS = 200_000
"""Waiting below this is ignored, too: threads wait 0.13 to 0.18 ms for the judge, on two cores at their usual speed."""
STOPPING_NS = 200_000 + 5_000 * (os.cpu_count() or 1)
"""Time within which a side that only computes has stopped: 0.07 to 0.18 ms there, with one thread or several."""
LOOKING_NS = 100_000
"""Time within which a look at the outputs is over: 0.01 to 0.04 ms there."""
_RECENT = 15
"""Number of recent calls of the reference that are used."""
_MARGIN, _MOST = 1.5, 2.5
"""Factor on the median of recent times, and the largest on the usual time."""
_AT_WORK = 0.05
"""Share of the CPU time of all threads below which a thread does not count as one that needs a core. On a crowded host
every thread waits, and threads that hardly compute must not make the side look too wide for its cores."""
_STEAL = 7
_NS_PER_TICK = 10**9 // os.sysconf("SC_CLK_TCK")


class Usual:
    """Longest usual time of the judge's own work on a side, on this host at present."""

    def __init__(self, usual_ns: int) -> None:
        self._usual_ns = usual_ns
        self._recent: deque[int] = deque(maxlen=_RECENT)

    def add(self, taken_ns: int) -> None:
        """Learn from a call of the reference."""
        self._recent.append(taken_ns)

    @property
    def most_ns(self) -> int:
        """Return the longest time that is not a disturbance."""
        recent_ns = _MARGIN * median(self._recent) if self._recent else 0.0
        return round(min(max(recent_ns, self._usual_ns), _MOST * self._usual_ns))


class Watch:
    """Observes one side during its calls."""

    def __init__(self, pid: int, cores: Collection[int], waiting: Usual) -> None:
        self._waiting = waiting
        self.waited_ns = 0
        """Time that one of its threads spent in a run queue in the last call."""
        self._threads = Path(f"/proc/{pid}/task")
        self._cores = frozenset(cores)
        self._before: dict[str, tuple[int, int]] = {}
        self._stolen = 0

    def begin(self) -> None:
        """Record the state before a call; the side is stopped."""
        self._before = self._account()
        self._stolen = self._steals()

    def end(self, elapsed_ns: int) -> str:
        """Return the reason that kept the side from running since `begin`; empty: none that matters."""
        allowed_ns = max(self._waiting.most_ns, int(_SHARE * elapsed_ns))
        spent = [
            (ran - self._before.get(thread, (0, 0))[0], waited - self._before.get(thread, (0, 0))[1])
            for thread, (ran, waited) in self._account().items()
        ]
        computed_ns = sum(ran for ran, _ in spent)
        at_work = sum(ran > _AT_WORK * computed_ns for ran, _ in spent)
        self.waited_ns = max((waited for _, waited in spent), default=0)
        if at_work <= len(self._cores) and self.waited_ns > allowed_ns:
            return f"it waited {self.waited_ns / 1000:.0f} us for a core that another process had"
        stolen_ns = (self._steals() - self._stolen) * _NS_PER_TICK
        if stolen_ns > max(allowed_ns, int(_SHARE * elapsed_ns * len(self._cores))):
            return f"the hypervisor ran something else for {stolen_ns / 1000:.0f} us"
        return ""

    def _account(self) -> dict[str, tuple[int, int]]:
        account: dict[str, tuple[int, int]] = {}
        try:
            for thread in self._threads.iterdir():
                ran, waited, _ = (thread / "schedstat").read_text(encoding="ascii").split()
                account[thread.name] = (int(ran), int(waited))
        except (OSError, ValueError):
            return {}
        return account

    def _steals(self) -> int:
        stolen = 0
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(" ")
            if name.startswith("cpu") and name != "cpu" and int(name[3:]) in self._cores:
                fields = rest.split()
                stolen += int(fields[_STEAL]) if len(fields) > _STEAL else 0
        return stolen


_LOOKS = 16
"""Number of looks within one time limit."""
_STARVED_SHARE = 0.5
"""Share of the looks in which it wanted a core, and of the time for which it was given one, that mean starvation."""
_RUNNABLE = "R"


class Starving:
    """Observes whether one process is starved of CPU time."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._used_s = cpu_s(pid)
        self._wanting: Counter[str] = Counter()
        self._chance = random.SystemRandom()

    def pauses_s(self, over_s: float) -> list[float]:
        """Return the pauses before each look of the next `over_s`."""
        shares = [self._chance.uniform(0.5, 1.5) for _ in range(_LOOKS)]
        return [over_s * share / sum(shares) for share in shares]

    def look(self) -> None:
        """Record which threads want a core, whether they have one or not."""
        with contextlib.suppress(OSError):  # it is gone, or one of its threads
            for thread in Path(f"/proc/{self._pid}/task").iterdir():
                self._wanting[thread.name] += stat_fields(thread / "stat")[0] == _RUNNABLE

    def is_starved(self, over_s: float) -> bool:
        """Return True if it wanted a core during the last `over_s` and was given little of it; then begin again.

        CPU time counts from the very beginning: a process that was given enough over time is not waited for again.
        """
        wanted = max(self._wanting.values(), default=0) > _STARVED_SHARE * _LOOKS
        self._wanting.clear()
        return wanted and cpu_s(self._pid) - self._used_s < _STARVED_SHARE * over_s


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far; 0 if it is gone."""
    try:
        fields = stat_fields(Path(f"/proc/{pid}/stat"))
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stat_fields(path: Path) -> list[str]:
    """Return the fields after the command's name, which is in parentheses and may contain anything."""
    return path.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()


SLOWED = 1.15
"""Factor above which a slowdown beside a candidate is more than chance."""
_POLICY = TimingPolicy(
    min_pairs=4, max_pairs=12, lease_s=1.0, stretched_lease_s=1.0, half_width=0.005, hopeless_speedup=0.0
)
_TRIES = 2
"""Tries to find the host fit: one second of another process's work is not enough to refuse timing."""
_WORTH_A_NOTE = math.log(1.02)
_UNFIT = math.log(1.10)
_CALLS_ALONE, _MOST_CALLS_ALONE, _ALONE_S = 5, 24, 1.0


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One timed call."""

    net_ns: int
    disturbance: str = ""


class Control:
    """Compares the reference with itself, and with its own past."""

    def __init__(self, time_reference: Callable[[], Sample]) -> None:
        self._time_reference = time_reference
        self._timing: Timing | None = None
        self._history_us = math.inf

    def check(self) -> str:
        """Time the reference against itself, unless that succeeded before. Returns why timing is impossible here."""
        said: list[str] = []
        while self._timing is None or _bias(self._timing) > _UNFIT:
            if len(said) == _TRIES:
                tries = ", then to ".join(said)
                return f"the reference against itself measures {tries}: timing is not possible on this host now"
            self._timing = time_pairs(self._pair, _POLICY)
            self._remember(self._timing.reference_latency_us)
            said.append(f"{self._timing.speedup:.2f}x after {self._timing.pairs} pairs")
        return ""

    def slowed(self, during_us: float) -> str:
        """Return a complaint if the reference was slower beside a candidate than alone. The candidate must be dead.

        The cause may be the candidate or another process that took caches or bandwidth. In both cases its pairs say
        nothing.
        """
        if during_us <= SLOWED * self._history_us:
            self._remember(during_us)
            return ""
        alone_us, slow_us = self._alone_us()
        if during_us <= SLOWED * slow_us:
            # The host has become slower, and is assumed to stay so.
            self._history_us = alone_us
            return ""
        self._remember(alone_us)
        return (
            f"the reference took {during_us:.1f} us beside this candidate, but {alone_us:.1f} us afterwards, alone: "
            "this candidate slowed it down, or the host was busy meanwhile"
        )

    @property
    def bias(self) -> float:
        """Return the relative error of the reference against itself that chance does not explain; else 0."""
        if self._timing is None or self._timing.interval.low <= 1.0 <= self._timing.interval.high:
            return 0.0
        return _bias(self._timing)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes for a result."""
        if self._timing is None:
            return ()
        timing = self._timing
        told = f"control: the reference against itself {timing.speedup:.3f}x after {timing.pairs} pairs"
        holds_one = timing.interval.low <= 1.0 <= timing.interval.high
        if _bias(timing) > _WORTH_A_NOTE and not holds_one:
            told += "; that is not 1: this host was disturbed"
        return (told,)

    def _pair(self, first: bool) -> Pair:
        one, other = self._time_reference(), self._time_reference()
        candidate, reference = (one, other) if first else (other, one)
        return Pair(
            candidate_ns=candidate.net_ns,
            reference_ns=reference.net_ns,
            disturbance=one.disturbance or other.disturbance,
        )

    def _alone_us(self) -> tuple[float, float]:
        """Return the reference's current time: the median of some calls, and the best of the slowest quarter."""
        until = time.monotonic() + _ALONE_S
        calls_ns: list[int] = []
        while len(calls_ns) < _CALLS_ALONE or (len(calls_ns) < _MOST_CALLS_ALONE and time.monotonic() < until):
            calls_ns.append(self._time_reference().net_ns)
        _, middle, slow = quantiles(calls_ns, n=4)
        return middle / 1000, slow / 1000

    def _remember(self, latency_us: float) -> None:
        self._history_us = min(self._history_us, latency_us)


def _bias(timing: Timing) -> float:
    return abs(math.log(timing.speedup))
