"""The recorder: keeps a run's folder in step with its event stream, so that people need not read the journal.

It decides nothing, and whatever it writes can be deleted: it replays the stream from the start and writes what is
missing. Its files are small and go to the page cache from the event loop, some tens of microseconds each.
"""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import anyio
from anyio.abc import TaskStatus

from actors.bus.base import Bus, Posted
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, in_order
from actors.planner.core.tree import path_titles
from actors.recorder.folder import Evidence, KeptVerdict, RunFiles, Snapshot
from messages.codec import decode_body
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten
from messages.facts import Decided, EditsApplied, IncumbentChanged, RunFinished
from messages.verdicts import DidNotBuild

PARTING_S = 10.0
"""How long a recorder that is stopped may take to write down what was published before."""


async def record_run(
    bus: Bus,
    *,
    run_id: str,
    folder: Path,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Write a run's candidates, its incumbent and its world model into the run's folder until cancelled.

    When cancelled it first writes down what the stream holds at that moment, within `PARTING_S`.

    Args:
        bus: where the run's stream is.
        run_id: which run.
        folder: the run's folder; `candidates/`, `best/` and `world_model/` in it are the recorder's.
        task_status: told when reading is about to begin.

    Raises:
        messages.errors.BoundaryError: the folder cannot be written, or the bus failed.
    """
    await bus.open_stream(run_id)
    recorder = _Recorder(RunFiles(folder), run_id)
    task_status.started()
    try:
        async with aclosing(bus.events(run_id)) as events:
            async for posted in events:
                recorder.take(posted)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(PARTING_S, shield=True):
            await _catch_up(bus, run_id, recorder)
        raise


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
    """The fold of a stream into files. Keeps the tree, for its titles, and no texts."""

    def __init__(self, files: RunFiles, run_id: str) -> None:
        self._files = files
        self._run_id = run_id
        self._state = SearchState()
        self.last_seq = 0

    def take(self, posted: Posted) -> None:
        """Write down one entry."""
        body = decode_body(posted.payload)
        match body:
            case CandidateWritten():
                self._files.keep_candidate(body)
            case CandidateBuilt():
                self._files.keep_log(body.candidate_id, body.outcome.log)
                if isinstance(body.outcome, DidNotBuild):
                    self._files.keep_verdict(body.candidate_id, _build_verdict(posted, body, body.outcome))
            case CandidateEvaluated():
                self._files.keep_verdict(body.candidate_id, _verdict(posted, body))
            case Decided():
                self._decided(posted, body)
            case _:
                pass
        self.last_seq = posted.seq

    def _decided(self, posted: Posted, decided: Decided) -> None:
        for fact in decided.facts:
            self._state = evolve(self._state, fact)
            if isinstance(fact, IncumbentChanged):
                self._files.keep_best(self._evidence(posted, fact))
        if any(isinstance(fact, EditsApplied | RunFinished) for fact in decided.facts):
            self._files.keep_snapshot(self._snapshot(posted))

    def _snapshot(self, posted: Posted) -> Snapshot:
        return Snapshot(
            seq=posted.seq,
            at=posted.at,
            run_id=self._run_id,
            rounds=self._state.rounds,
            summary=self._state.summary,
            open_questions=self._state.open_questions,
            nodes=tuple(in_order(self._state.nodes)),
        )

    def _evidence(self, posted: Posted, fact: IncumbentChanged) -> Evidence:
        return Evidence(
            seq=posted.seq,
            at=posted.at,
            run_id=self._run_id,
            candidate_id=fact.candidate_id,
            round=fact.round,
            node_id=fact.node_id,
            found_by=path_titles(self._state, fact.node_id),
            credit=fact.credit,
            speedup_vs_reference=fact.speedup,
            latency_us=fact.latency_us,
        )


def _build_verdict(posted: Posted, built: CandidateBuilt, verdict: DidNotBuild) -> KeptVerdict:
    return KeptVerdict(
        seq=posted.seq,
        at=posted.at,
        job_id=built.job_id,
        device=built.target.device,
        purpose="build",
        wall_s=built.wall_s,
        verdict=verdict,
    )


def _verdict(posted: Posted, evaluated: CandidateEvaluated) -> KeptVerdict:
    return KeptVerdict(
        seq=posted.seq,
        at=posted.at,
        job_id=evaluated.job_id,
        device=evaluated.device,
        purpose=evaluated.purpose,
        wall_s=evaluated.wall_s,
        lease_s=evaluated.lease_s,
        verdict=evaluated.verdict,
    )
