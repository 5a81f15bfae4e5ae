"""The recorder: keeps a run's folder in sync with its event stream, so that people need not read the journal.

Its files can be deleted: the recorder replays the stream from the start and writes what is missing. The files are small
and are written on the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus

from actors.bus.base import Bus, Posted
from actors.bus.stream import body_of
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, in_order, path_titles
from actors.planner.jobs import Texts, text_of, whole_written
from actors.recorder.folder import Evidence, KeptVerdict, RunFiles, Snapshot
from actors.recorder.projection import Projection
from messages.base import copied
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, RunStarted
from messages.facts import Decided, EditsApplied, IncumbentChanged, RunFinished
from messages.models import Quote
from messages.steering import SteeringRequested
from messages.tasks import Candidate
from messages.verdicts import DidNotBuild

PARTING_S = 10.0
"""Time limit for a stopped recorder to write events published earlier."""


async def record_run(
    bus: Bus,
    *,
    run_id: str,
    folder: Path,
    journal: Path | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Write a run's candidates, incumbent and world model into the run's folder until cancelled.

    When cancelled, it first writes the stream's current content, within `PARTING_S`.

    The recorder owns `candidates/`, `attempts/`, `best/` and `world_model/` in the run's folder. `journal` is a file
    for a copy of the stream, if the stream is not itself stored in a file.

    Raises:
        messages.base.BoundaryError: the folder cannot be written, another process writes to it, or the bus failed.
    """
    async with _recorder(bus, run_id, folder, journal) as recorder:
        task_status.started()
        try:
            async with aclosing(bus.events(run_id)) as events:
                async for posted in events:
                    recorder.take(posted)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(PARTING_S, shield=True):
                await _catch_up(bus, run_id, recorder)
            raise


async def record_past(bus: Bus, *, run_id: str, folder: Path, journal: Path) -> None:
    """Write the stream's current content, as `record_run` does, and return."""
    async with _recorder(bus, run_id, folder, journal) as recorder:
        await _catch_up(bus, run_id, recorder)


@asynccontextmanager
async def _recorder(bus: Bus, run_id: str, folder: Path, journal: Path | None) -> AsyncIterator[_Recorder]:
    last = await bus.open_stream(run_id)
    if journal is None:
        yield _Recorder(RunFiles(folder), run_id)
        return
    projection = await anyio.to_thread.run_sync(Projection, journal)
    try:
        projection.check(run_id, last)
        yield _Recorder(RunFiles(folder), run_id, projection)
    finally:
        projection.close()


async def _catch_up(bus: Bus, run_id: str, recorder: _Recorder) -> None:
    last = await bus.open_stream(run_id)
    if recorder.last_seq >= last:
        return
    async with aclosing(bus.events(run_id, after=recorder.last_seq)) as events:
        async for posted in events:
            recorder.take(posted)
            if posted.seq >= last:
                return


class _Recorder:
    """Folds a stream into files. Keeps the tree for its titles, but no texts that are on disk."""

    def __init__(self, files: RunFiles, run_id: str, projection: Projection | None = None) -> None:
        self._files = files
        self._run_id = run_id
        self._projection = projection
        self._state = SearchState()
        self._texts = Texts()
        """The task, and given programs."""
        self.last_seq = 0

    def take(self, posted: Posted) -> None:
        body = body_of(posted)
        if self._projection is not None and body is not None:
            self._projection.take(posted, body)
        match body:
            case CandidateWritten() if self._files.lacks(body):
                written = whole_written(body, partial(self._quoted, body.candidate))
                self._files.keep_candidate(written)
                self._files.keep_attempt(written)
            case RunStarted() | SteeringRequested():
                self._texts.take(body)
            case CandidateBuilt():
                self._files.keep_log(body.candidate_id, body.outcome.log)
                if isinstance(body.outcome, DidNotBuild):
                    place = {"seq": posted.seq, "at": posted.at, "device": body.target.device, "purpose": "build"}
                    self._files.keep_verdict(
                        body.candidate_id, copied(KeptVerdict, body, verdict=body.outcome, **place)
                    )
            case CandidateEvaluated():
                self._files.keep_verdict(body.candidate_id, copied(KeptVerdict, body, seq=posted.seq, at=posted.at))
            case Decided():
                self._decided(posted, body)
            case _:
                pass
        self.last_seq = posted.seq

    def _quoted(self, own: Candidate | None, quote: Quote) -> str | None:
        if own is not None and own.candidate_id == quote.source:
            return text_of(own, quote.path)
        given = self._texts.quoted(quote)
        return given if given is not None else self._files.source(quote.source, quote.path)

    def _decided(self, posted: Posted, decided: Decided) -> None:
        for fact in decided.facts:
            self._state = evolve(self._state, fact)
            if isinstance(fact, IncumbentChanged):
                self._files.keep_best(self._evidence(posted, fact))
        if any(isinstance(fact, EditsApplied | RunFinished) for fact in decided.facts):
            self._files.keep_snapshot(self._snapshot(posted))

    def _snapshot(self, posted: Posted) -> Snapshot:
        state = self._state
        return copied(
            Snapshot, state, seq=posted.seq, at=posted.at, run_id=self._run_id, nodes=tuple(in_order(state.nodes))
        )

    def _evidence(self, posted: Posted, fact: IncumbentChanged) -> Evidence:
        return copied(
            Evidence,
            fact,
            seq=posted.seq,
            at=posted.at,
            run_id=self._run_id,
            found_by=path_titles(self._state, fact.node_id),
            speedup_vs_reference=fact.speedup,
        )
