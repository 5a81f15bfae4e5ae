"""Transfer of artifacts from builders to evaluators on other hosts, as blobs of their run.

If builder and evaluator share a store, neither class is used. Both classes limit the size of their store.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.bus.base import Bus, UnknownBlobError
from evaluators.base import Builder, BuildReport, EvaluationReport, Evaluator
from evaluators.build.shipping import check_artifact_id, pack, unpack
from evaluators.build.storage import Hold, hold, trim
from messages.base import EvaluatorError
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built

STORE_BYTES = 2 << 30
"""Size limit of a node's store; the oldest artifacts go first."""
TRIM_S = 60.0
"""Interval between store size checks."""

log = structlog.get_logger(__name__)


class ShippingBuilder:
    """A `Builder` that stores another builder's artifacts as blobs of the run."""

    def __init__(self, bus: Bus, builder: Builder, artifacts: Path, *, store_bytes: int = STORE_BYTES) -> None:
        self._bus = bus
        self._builder = builder
        self._artifacts = artifacts.absolute()
        self._store = _Store(self._artifacts, store_bytes)

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Build a candidate and store its artifact as a blob of the run.

        Raises:
            EvaluatorError: the builder or its store failed.
            messages.base.BusError: the blob could not be stored.
        """
        report = await self._builder.build(job)
        if not isinstance(report.outcome, Built):
            return report
        packed = await anyio.to_thread.run_sync(pack, self._artifacts, report.outcome.artifact_id)
        digest = await self._bus.put_blob(job.run_id, packed)
        await self._store.look()
        return msgspec.structs.replace(report, outcome=msgspec.structs.replace(report.outcome, blob=digest))


class FetchingEvaluator:
    """An `Evaluator` that fetches missing artifacts from the run's blobs and has another evaluator judge them."""

    def __init__(self, bus: Bus, evaluator: Evaluator, artifacts: Path, *, store_bytes: int = STORE_BYTES) -> None:
        self._bus = bus
        self._evaluator = evaluator
        self._artifacts = artifacts.absolute()
        self._store = _Store(self._artifacts, store_bytes)
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Judge one candidate while holding its artifact in the store.

        Raises:
            EvaluatorError: the judge, artifact or device is at fault, or the artifact was not found.
            messages.base.BusError: the blob could not be fetched.
        """
        held = await self._have(job)
        try:
            return await self._evaluator.evaluate(job)
        finally:
            held.release()

    async def aclose(self) -> None:
        """End all processes."""
        await self._evaluator.aclose()

    async def _have(self, job: EvaluateCandidate) -> Hold:
        check_artifact_id(job.artifact_id)
        turn = self._turns.setdefault(job.artifact_id, anyio.Lock())
        async with turn:
            held = await anyio.to_thread.run_sync(hold, self._artifacts, job.artifact_id)
            if held is None:
                await self._fetch(job)
                held = await anyio.to_thread.run_sync(hold, self._artifacts, job.artifact_id)
        if held is None:
            raise EvaluatorError(f"artifact {job.artifact_id!r} was removed from the store at once")
        try:
            await self._store.look()
        except BaseException:
            held.release()
            raise
        return held

    async def _fetch(self, job: EvaluateCandidate) -> None:
        if not job.artifact_blob:
            raise EvaluatorError(
                f"artifact {job.artifact_id!r} is not in the store {str(self._artifacts)!r}, and was not sent"
            )
        try:
            packed = await self._bus.get_blob(job.run_id, job.artifact_blob)
        except UnknownBlobError as error:
            raise EvaluatorError(f"artifact {job.artifact_id!r} is not among the run's blobs: {error}") from error
        await anyio.to_thread.run_sync(unpack, self._artifacts, job.artifact_id, packed)
        log.info("artifact fetched", run=job.run_id, job=job.job_id, artifact=job.artifact_id, size_bytes=len(packed))


class _Store:
    def __init__(self, artifacts: Path, max_bytes: int) -> None:
        self._artifacts = artifacts
        self._max_bytes = max_bytes
        self._looked_at: float | None = None

    async def look(self) -> None:
        now = anyio.current_time()
        if self._looked_at is not None and now - self._looked_at < TRIM_S:
            return
        self._looked_at = now
        removed = await anyio.to_thread.run_sync(partial(trim, self._artifacts, max_bytes=self._max_bytes))
        if removed:
            log.info("artifacts removed", count=removed, store=str(self._artifacts))
