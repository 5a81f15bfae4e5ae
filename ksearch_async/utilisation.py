"""How busy the devices of a run were lately: the share of time for which their timing leases were held.

Pure: verdicts in, shares out. A verdict says how long its lease was held until just before; what is being timed now is
not known before its verdict comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import accumulate

import msgspec

from messages.events import CandidateEvaluated

_WINDOW = timedelta(seconds=60)
_FEWEST = 4
"""Verdicts that the window is long enough for at least, so that long evaluations do not come and go in it."""
_KEPT = 64
"""Verdicts that are kept of each device."""


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """A device, or the part of one that an evaluator process has."""

    name: str
    share: float
    """Of wall-clock, 0 to 1, for which the lease was held, or, where nothing is timed, an evaluation was under way."""
    verdicts: int
    """Of the session."""
    mean_s: float
    """Seconds that an evaluation took of late, what came before its lease included."""


class _Span(msgspec.Struct, frozen=True):
    began: datetime
    held: datetime
    """Since when it held the lease; `ended`, if it held none."""
    ended: datetime


class Utilisation:
    """Keeps the latest evaluations of each device."""

    def __init__(self, *, slots: int | None = None) -> None:
        """Keep them.

        Args:
            slots: evaluations that are worked on at once; null: as many as were seen to be, since workers come and go.
        """
        self._slots = slots
        self._spans: dict[tuple[str, str], deque[_Span]] = {}
        self._devices: dict[tuple[str, str], str] = {}
        self._verdicts: dict[tuple[str, str], int] = {}

    def take(self, evaluated: CandidateEvaluated, at: datetime) -> None:
        """Take a verdict."""
        key = (evaluated.worker, evaluated.unit)
        held = timedelta(seconds=evaluated.lease_s)
        wall = max(held, timedelta(seconds=evaluated.wall_s))
        self._devices[key] = evaluated.device
        self._verdicts[key] = self._verdicts.get(key, 0) + 1
        spans = self._spans.setdefault(key, deque(maxlen=_KEPT))
        spans.append(_Span(at - wall, at - held, at))

    def devices(self, now: datetime, *, since: datetime, is_waiting: bool, is_timed: bool) -> list[DeviceUse]:
        """Return the devices that gave verdicts, busiest first.

        Args:
            now: the window's end.
            since: when the session began; the window does not reach back further.
            is_waiting: evaluations are under way. The window ends with a device's latest verdict then, if that is not
                long ago: what it does since is not known yet.
            is_timed: what is judged has times, which are taken under a lease.
        """
        several = len({worker for worker, _ in self._spans}) > 1
        found = []
        for key, spans in self._spans.items():
            latest = spans[-1].ended
            until = latest if is_waiting and now - latest < _WINDOW / 2 else now
            reach = max(_WINDOW, latest - spans[-min(_FEWEST, len(spans))].began)
            begin = max(since, until - reach)
            name = _name(key, self._devices[key], several=several)
            share = _share(spans, begin, until, is_timed=is_timed)
            mean_s = sum((span.ended - span.began).total_seconds() for span in spans) / len(spans)
            found.append(DeviceUse(name=name, share=share, verdicts=self._verdicts[key], mean_s=mean_s))
        return sorted(found, key=lambda use: (-use.share, use.name))

    def slots(self) -> int | None:
        """Return how many evaluations are worked on at once; null: nothing tells yet."""
        if self._slots is not None:
            return self._slots
        return sum(_most_at_once(spans) for spans in self._spans.values()) or None


def _share(spans: Iterable[_Span], begin: datetime, end: datetime, *, is_timed: bool) -> float:
    """Return for which part of a stretch of time a device was held."""
    if begin >= end:
        return 0.0
    starts = ((span.held if is_timed else span.began, span.ended) for span in spans)
    held = _united((max(start, begin), min(stop, end)) for start, stop in starts)
    return sum((stop - start).total_seconds() for start, stop in held) / (end - begin).total_seconds()


def _name(key: tuple[str, str], device: str, *, several: bool) -> str:
    """Name a device: by its unit, with the process that has it where there are several."""
    worker, unit = key
    if several and worker:
        return f"{worker} {unit}".rstrip()
    return unit or device


def _united(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """Return the stretches of time that lie in any of the spans."""
    united: list[tuple[datetime, datetime]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if united and begin <= united[-1][1]:
            united[-1] = (united[-1][0], max(united[-1][1], end))
        else:
            united.append((begin, end))
    return united


def _most_at_once(spans: Iterable[_Span]) -> int:
    """Return how many evaluations of a device were under way at once, at most."""
    steps = sorted(step for span in spans for step in ((span.began, 1), (span.ended, -1)))
    return max(accumulate(change for _, change in steps), default=0)
