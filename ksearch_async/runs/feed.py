"""A run's records from its journal or its stream, and the small values that views are made of.

Page, report, pictures, comparison, trackers and notices all read these and compute nothing of a run anew. Whoever keeps
the latest `NodeView` and `JobView` by id, and all `Mark`s, knows the run as it is; whoever keeps all updates can show
how it was after any of them. Field names are the JSON's; fields at their default are left out of it.

Both feeds read and change nothing, take no lock, and go on for ever: a run that is over may be resumed. They yield
records in batches, as they found them, so that a long run is folded at the speed of its file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeAlias

import anyio
import anyio.to_thread
import msgspec

from actors.bus.base import Bus, Posted
from actors.bus.journal import SPAN_BYTES, as_bus_errors, is_torn, parse_line
from actors.bus.stream import body_of
from actors.planner.core.state import NodeState
from ksearch_async.runs.state import Chronicle, Standing
from messages.base import BusError, Language
from messages.codec import CodecError, Record, decode_line
from messages.events import RunStarted
from messages.facts import Origin
from messages.models import Lineup
from messages.verdicts import Fate, TimedWorkload

JobVerb: TypeAlias = Literal["planning", "writing", "building", "evaluating", "confirming"]
NoteKind: TypeAlias = Literal["best", "world_model", "attempt", "loss", "steering", "course"]
"""What a line tells of: a new best or its confirmation, the tree, an attempt, what the infrastructure lost, an order of
a person's, how the run goes on or ends."""


class Worth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a correct candidate is worth."""

    candidate_id: str
    credit: float | None = None
    """Lower bound of the speedup's 95 % interval, or a score; null: not timed."""
    speedup: float | None = None
    """Median against the reference; null for scores and where nothing was timed."""
    speedup_high: float | None = None
    latency_us: float | None = None
    is_least: bool = False
    """`speedup` is the least that it may be: its time could not be told."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An action of the tree as it is after a record."""

    node_id: str
    parent_id: str
    """Empty for the root."""
    title: str
    state: NodeState
    priority: float = 0.0
    """V, as the planner's model last said it."""
    difficulty: int = 1
    depth: int = 0
    origin: Origin = "model"
    second_id: str = ""
    expected_gain: float | None = None
    best: Worth | None = None
    """Of its branches that ended; see `JobView` for what is under way."""
    rounds: int = 0
    tries: int = 0
    fates: tuple[tuple[Fate, int], ...] = ()
    in_flight: int = 0
    """Branches at work on it."""
    prune_reason: str = ""
    spent: bool = False
    pinned: bool = False
    boost: float = 0.0
    forbidden: bool = False
    """It, or an action above it."""


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of work, from the record that asked for it to the one that answered."""

    job_id: str
    verb: JobVerb
    node_id: str
    """`n0` for the planner's calls."""
    began_s: float
    """Seconds of the run at which it was asked for: queueing is included."""
    ended_s: float | None = None
    """Null: under way."""
    busy_s: float | None = None
    """Of the time between, what its worker itself says that it took; null: it does not say."""
    branch_id: str = ""
    candidate_id: str = ""
    worker: str = ""
    """Process that did it; empty in a run of one process."""
    unit: str = ""
    """Device of an evaluation, as its evaluator names it; the model's name of a question."""
    result: str = ""
    """Verdict's tag, `built`, `written`, `unusable`, `edits`, `refused`, `lost`, `dropped`; empty: under way."""


class AttemptView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An attempt, or one draft of it, that has its outcome."""

    node_id: str
    branch_id: str
    fate: Fate
    outcome: str
    round: int = 0
    """0: nothing was evaluated for it."""
    candidate_id: str = ""
    worth: Worth | None = None
    repeats_known: bool = False
    """It wrote what another attempt had written."""


class ConfirmationView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A candidate that was measured a second time: from then on it counts for what that said, not its attempt."""

    candidate_id: str
    fate: Fate
    outcome: str
    worth: Worth | None = None
    """Null: it was refuted."""
    screen_speedup: float
    """What its first measurement had said."""


class Mark(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A new incumbent: a step of the best-so-far curve."""

    candidate_id: str
    node_id: str
    round: int
    """In which it was screened."""
    elapsed_s: float
    cost_usd: float
    calls: int
    """Model calls so far."""
    credit: float
    speedup: float | None = None
    """Null for a score, which is its credit."""
    speedup_high: float | None = None
    latency_us: float | None = None
    reference_latency_us: float | None = None
    baseline: str = ""
    baseline_latency_us: float | None = None
    speedup_vs_baseline: float | None = None
    screen_speedup: float | None = None
    """What its first measurement had said; null if it was measured once."""
    workloads: tuple[TimedWorkload, ...] = ()


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line for people."""

    kind: NoteKind
    text: str
    node_id: str = ""


class Totals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's figures after a record."""

    standing: Standing = "running"
    stopped_by: str = ""
    detail: str = ""
    rounds: int = 0
    elapsed_s: float = 0.0
    """Wall-clock over all sessions, without pauses."""
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    """Of the answers whose price is known."""
    unpriced_calls: int = 0
    """Answers whose price is not."""
    fates: dict[str, int] = msgspec.field(default_factory=dict)
    """Attempts by fate; `duplicate` counts those that wrote a known candidate."""
    faults: dict[str, int] = msgspec.field(default_factory=dict)
    """Failed tries of model calls, by kind."""
    best_id: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a run is: told once, and again when it goes on with another budget."""

    run_id: str
    task: str
    task_id: str
    language: Language
    device: str
    toolchain: str
    started_at: str
    """ISO 8601, UTC."""
    seed: int
    scored: bool = False
    """Candidates have scores instead of speedups."""
    branches: int = 1
    world_model: str = "evolving"
    max_rounds: int = 0
    max_seconds: float | None = None
    max_calls: int | None = None
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    target_speedup: float | None = None
    models: tuple[str, ...] = ()
    """Planner's first; those that the run's line-up names."""
    roofline_us: float | None = None
    roofline_limited_by: str = ""
    workloads: tuple[str, ...] = ()
    summary: str = ""


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one record changed."""

    seq: int
    """Of the record: a reader that knows the run up to here goes on after it."""
    at: str
    """ISO 8601, UTC."""
    totals: Totals
    head: Head | None = None
    nodes: tuple[NodeView, ...] = ()
    """Those that changed, as they are now."""
    jobs: tuple[JobView, ...] = ()
    attempts: tuple[AttemptView, ...] = ()
    confirmations: tuple[ConfirmationView, ...] = ()
    marks: tuple[Mark, ...] = ()
    notes: tuple[Note, ...] = ()


def head_of(chronicle: Chronicle, started: RunStarted, *, first_at: str | None) -> Head:
    """Return what a run is, as it goes on now."""
    state = chronicle.state
    settings = state.settings if state.run_id else started.settings
    budget, bound, target = settings.budget, chronicle.roofline(), started.target
    return Head(
        run_id=started.run_id,
        task=started.task.name,
        task_id=started.task.task_id,
        language=started.description.language,
        device=target.device,
        toolchain=target.toolchain,
        started_at=first_at or (chronicle.last_at.isoformat() if chronicle.last_at else ""),
        seed=started.seed,
        scored=started.initial is not None,
        branches=settings.branches,
        world_model=settings.world_model,
        max_rounds=budget.max_rounds,
        max_seconds=budget.wall_clock_s,
        max_calls=budget.max_calls,
        max_tokens=budget.max_tokens,
        max_cost_usd=budget.max_cost_usd,
        target_speedup=budget.target_speedup,
        models=model_names(state.lineup if state.run_id else started.lineup),
        roofline_us=bound.time_us if bound else None,
        roofline_limited_by=bound.limited_by if bound else "",
        workloads=tuple(workload.name for workload in started.description.workloads),
        summary=state.summary,
    )


def model_names(lineup: Lineup) -> tuple[str, ...]:
    """Return the names of a run's models, each once, the planner's first."""
    offers = (lineup.planner, *lineup.coders)
    return tuple(dict.fromkeys(offer.name for offer in offers if offer.name))


LOOK_S = 0.2
"""After so long a journal that has grown is looked at again; one that has not, after ever longer."""
_RARELY = 5
"""Up to so many times that."""
_BATCH = 256
"""Entries of a stream that are handed on together, while there are more."""
_NEAR = 64
"""Entries that are read and thrown away rather than asking once more."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Records that were read together, in order."""

    records: tuple[Record, ...] = ()
    places: tuple[int, ...] = ()
    """Where `Feed.at` finds each of them again."""
    is_current: bool = False
    """Nothing more was there when they were read."""


class Feed(Protocol):
    """A run's records."""

    def batches(self, *, after: int = 0) -> AsyncGenerator[Batch, None]:
        """Yield the records behind `after`, then those that come, for ever. Close it (`aclosing`) when done.

        At least one batch is yielded, so that a reader learns that there is nothing more.

        Raises:
            messages.base.BusError: they cannot be read, or are no records of ours.
        """

    async def at(self, places: Sequence[int]) -> list[Record]:
        """Return records that were read before, by their places, in ascending order.

        Raises:
            messages.base.BusError: they are not there any more.
        """


async def records_of(feed: Feed, *, after: int = 0) -> AsyncIterator[Record]:
    """Yield a run's records behind `after`, one after the other, then those that come, for ever.

    Raises:
        messages.base.BusError: as `Feed.batches`.
    """
    async with aclosing(feed.batches(after=after)) as batches:
        async for batch in batches:
            for record in batch.records:
                yield record


class JournalFeed:
    """Reads a run's folder."""

    def __init__(self, journal: Path, *, look_s: float = LOOK_S) -> None:
        self._journal = journal
        self._look_s = look_s

    async def batches(self, *, after: int = 0) -> AsyncGenerator[Batch, None]:
        """See `Feed.batches`. A torn last line is waited for."""
        reader, wait_s, first = JournalReader(self._journal), self._look_s, True
        while True:
            batch = await anyio.to_thread.run_sync(reader.read)
            if batch.records or first:
                yield _behind(batch, after)
            first = False
            wait_s = self._look_s if batch.records else min(2 * wait_s, _RARELY * self._look_s)
            if batch.is_current:
                await anyio.sleep(wait_s)

    async def at(self, places: Sequence[int]) -> list[Record]:
        """See `Feed.at`. A place is the beginning of a line, in bytes."""
        return await anyio.to_thread.run_sync(read_lines, self._journal, places)


def _behind(batch: Batch, after: int) -> Batch:
    """Return a batch without the records up to `after`."""
    skipped = sum(record.seq <= after for record in batch.records)
    return Batch(records=batch.records[skipped:], places=batch.places[skipped:], is_current=batch.is_current)


class StreamFeed:
    """Reads a run's stream on a bus."""

    def __init__(self, bus: Bus, run_id: str) -> None:
        self._bus = bus
        self._run_id = run_id

    async def batches(self, *, after: int = 0) -> AsyncGenerator[Batch, None]:
        """See `Feed.batches`. What others than a run's actors say there is left out."""
        known = await self._bus.open_stream(self._run_id)
        if known <= after:
            yield Batch(is_current=True)
        waiting: list[Record] = []
        async with aclosing(self._bus.events(self._run_id, after=after)) as events:
            async for posted in events:
                waiting.extend(_record(posted))
                if posted.seq >= known or len(waiting) >= _BATCH:
                    places = tuple(record.seq for record in waiting)
                    yield Batch(records=tuple(waiting), places=places, is_current=posted.seq >= known)
                    waiting.clear()

    async def at(self, places: Sequence[int]) -> list[Record]:
        """See `Feed.at`. A place is the number of an entry."""
        found: list[Record] = []
        for span in _spans(places):
            async with aclosing(self._bus.events(self._run_id, after=span[0] - 1)) as events:
                async for posted in events:
                    if posted.seq in span:
                        found.extend(_record(posted))
                    if posted.seq >= span[-1]:
                        break
        return found


def _spans(places: Sequence[int]) -> list[list[int]]:
    """Return places in ascending order, in groups that are read in one go: what lies between costs less than asking."""
    spans: list[list[int]] = []
    for place in sorted(set(places)):
        if spans and place - spans[-1][-1] <= _NEAR:
            spans[-1].append(place)
        else:
            spans.append([place])
    return spans


def _record(posted: Posted) -> list[Record]:
    body = body_of(posted)
    return [Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body)] if body is not None else []


def read_lines(journal: Path, places: Sequence[int]) -> list[Record]:
    """Return the records of lines that begin at these places, in ascending order.

    Raises:
        messages.base.BusError: there are none.
    """
    with as_bus_errors(journal), open_journal(journal) as file:
        return [_line_at(file, journal, place) for place in sorted(set(places))]


def _line_at(file: BinaryIO, journal: Path, place: int) -> Record:
    file.seek(place)
    try:
        return decode_line(file.readline())
    except CodecError as error:
        raise BusError(f"journal {journal} was replaced by another one while it was read") from error


def open_journal(path: Path) -> BinaryIO:
    """Open a journal for reading; never what a link leads to, and nothing that is no file.

    Raises:
        messages.base.BusError: it is no file.
        OSError: it cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(fd, "rb")
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        file.close()
        raise BusError(f"journal {path} is no file")
    return file


class JournalReader:
    """Reads a journal that somebody may be appending to, a span at a time, and remembers only how far it came."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        """Behind the last line that was read."""
        self._lines = 0
        self._last = 0
        self._identity: tuple[int, int] | None = None

    def read(self) -> Batch:
        """Return the records of about the next `SPAN_BYTES`; none if nothing was added.

        Raises:
            BusError: the journal cannot be read, is damaged, or is another one than before.
        """
        with as_bus_errors(self._path), open_journal(self._path) as file:
            size = self._check(os.fstat(file.fileno()))
            block = self._span(file.fileno(), size) if size > self._offset else b""
        return self._parse(block, at_end=self._offset + len(block) >= size)

    def _check(self, status: os.stat_result) -> int:
        """Return the file's size, if it is the one that was read before."""
        identity = (status.st_dev, status.st_ino)
        if self._identity not in (None, identity) or status.st_size < self._offset:
            raise BusError(f"journal {self._path} was replaced by another one while it was read")
        self._identity = identity
        return status.st_size

    def _span(self, fd: int, size: int) -> bytes:
        """Read on, to the end of a line if there is one."""
        wanted = SPAN_BYTES
        while True:
            block = os.pread(fd, wanted, self._offset)
            if b"\n" in block or self._offset + wanted >= size or len(block) < wanted:
                return block
            wanted *= 2

    def _parse(self, block: bytes, *, at_end: bool) -> Batch:
        lines = block.splitlines(keepends=True)
        if lines and (not lines[-1].endswith(b"\n") or (at_end and is_torn(lines[-1]))):
            lines.pop()
        records, places = [], []
        for line in lines:
            record = parse_line(line, self._lines + 1, self._last, self._path)
            places.append(self._offset)
            self._offset += len(line)
            self._lines += 1
            self._last = record.seq
            records.append(record)
        return Batch(records=tuple(records), places=tuple(places), is_current=at_end)
