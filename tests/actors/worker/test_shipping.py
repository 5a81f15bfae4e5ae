"""Artifacts go from a builder's store to an evaluator's through the run's blobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
import pytest

from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.worker.artifacts import FetchingEvaluator, ShippingBuilder
from evaluators.base import BuildReport, EvaluationReport
from evaluators.build.builder import ArtifactMeta, artifact_folder, load_meta
from evaluators.build.storage import trim
from messages.base import EvaluatorError
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Target
from messages.verdicts import DidNotBuild, Measured
from tests.evaluators.words import build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio

TARGET = Target(arch="x86_64", march="", toolchain="g++", device="cpu")
CANDIDATE = cpp("int x;")
ID = "ab" * 16
RUN = "r1"


class FolderBuilder:
    """Lays down an artifact without a compiler."""

    def __init__(self, artifacts: Path) -> None:
        self._artifacts = artifacts

    async def build(self, job: BuildCandidate) -> BuildReport:
        await anyio.to_thread.run_sync(self._lay_down, job)
        return BuildReport(outcome=Built(artifact_id=ID), cached=False, wall_s=0.0, cpu_s=0.0)

    def _lay_down(self, job: BuildCandidate) -> None:
        folder = artifact_folder(self._artifacts, ID)
        folder.mkdir(parents=True, exist_ok=True)
        meta = ArtifactMeta(
            artifact_id=ID,
            candidate_id=job.candidate.candidate_id,
            target=job.target,
            entry_point="f",
            product="kernel.so",
            outcome=Built(artifact_id=ID),
        )
        (folder / "kernel.so").write_bytes(b"program")
        (folder / "meta.json").write_bytes(msgspec.json.encode(meta))


class StoreEvaluator:
    """Reads the product of what it is asked to judge."""

    def __init__(self, artifacts: Path) -> None:
        self._artifacts = artifacts
        self.products: list[bytes] = []

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        self.products.append(await anyio.to_thread.run_sync(self._product, job.artifact_id))
        return EvaluationReport(verdict=Measured(timed=False), device="cpu", wall_s=0.0, lease_s=0.0)

    def _product(self, artifact_id: str) -> bytes:
        meta = load_meta(self._artifacts, artifact_id)
        return (artifact_folder(self._artifacts, artifact_id) / meta.product).read_bytes()

    async def aclose(self) -> None:
        pass


class CountingBus(MemoryBus):
    """Counts how often a blob was asked for, and takes its time."""

    fetches = 0

    async def get_blob(self, run_id: str, digest: str) -> bytes:
        self.fetches += 1
        await anyio.sleep(0.02)
        return await super().get_blob(run_id, digest)


@pytest.fixture
async def bus() -> AsyncIterator[CountingBus]:
    bus = CountingBus(lambda _run_id: MemoryStore())
    await bus.open_stream(RUN)
    yield bus
    bus.close()


@pytest.fixture
async def built(bus: MemoryBus, tmp_path: Path) -> Built:
    builder = ShippingBuilder(bus, FolderBuilder(tmp_path / "builder"), tmp_path / "builder")
    outcome = (await builder.build(build_job(CANDIDATE, TARGET))).outcome
    assert isinstance(outcome, Built)
    return outcome


@pytest.fixture
def inner(tmp_path: Path) -> StoreEvaluator:
    return StoreEvaluator(tmp_path / "evaluator")


@pytest.fixture
def evaluator(bus: MemoryBus, inner: StoreEvaluator, tmp_path: Path) -> FetchingEvaluator:
    return FetchingEvaluator(bus, inner, tmp_path / "evaluator")


def job_of(blob: str) -> EvaluateCandidate:
    return msgspec.structs.replace(evaluate_job(CANDIDATE, ID, TARGET), artifact_blob=blob)


async def test_what_a_builder_built_is_judged_from_another_store(
    built: Built, evaluator: FetchingEvaluator, inner: StoreEvaluator
) -> None:
    await evaluator.evaluate(job_of(built.blob))
    assert inner.products == [b"program"]


async def test_what_is_in_the_store_is_not_fetched_again(
    bus: MemoryBus, built: Built, evaluator: FetchingEvaluator, inner: StoreEvaluator
) -> None:
    await evaluator.evaluate(job_of(built.blob))
    await bus.delete_run(RUN)
    await evaluator.evaluate(job_of(built.blob))
    assert inner.products == [b"program", b"program"]


async def test_many_jobs_for_one_artifact_at_once_fetch_it_once_and_all_are_judged(
    bus: CountingBus, built: Built, evaluator: FetchingEvaluator, inner: StoreEvaluator, tmp_path: Path
) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(evaluator.evaluate, job_of(built.blob))
    assert len(inner.products) == 8
    assert bus.fetches == 1
    assert [path.name for path in (tmp_path / "evaluator").iterdir()] == [ID]


async def test_what_was_judged_may_be_removed_from_the_store(
    built: Built, evaluator: FetchingEvaluator, tmp_path: Path
) -> None:
    await evaluator.evaluate(job_of(built.blob))
    assert await anyio.to_thread.run_sync(lambda: trim(tmp_path / "evaluator", max_bytes=0)) == 1


@pytest.mark.parametrize("blob", ["", "0" * 64])
async def test_an_artifact_that_is_to_be_had_nowhere_is_the_evaluators_error(
    evaluator: FetchingEvaluator, blob: str
) -> None:
    with pytest.raises(EvaluatorError, match=f"artifact '{ID}' is not"):
        await evaluator.evaluate(job_of(blob))


async def test_a_broken_archive_is_the_evaluators_error_and_leaves_nothing(
    bus: MemoryBus, evaluator: FetchingEvaluator, tmp_path: Path
) -> None:
    digest = await bus.put_blob(RUN, b"no archive")
    with pytest.raises(EvaluatorError, match="cannot be used"):
        await evaluator.evaluate(job_of(digest))
    assert not (tmp_path / "evaluator").exists()


async def test_a_job_whose_artifact_id_leads_out_of_the_store_is_refused(evaluator: FetchingEvaluator) -> None:
    with pytest.raises(EvaluatorError, match="names no artifact"):
        await evaluator.evaluate(msgspec.structs.replace(job_of(""), artifact_id="../builder"))


async def test_what_did_not_build_is_not_sent(bus: MemoryBus, tmp_path: Path) -> None:
    class Refusing:
        async def build(self, job: BuildCandidate) -> BuildReport:  # noqa: ARG002
            return BuildReport(outcome=DidNotBuild(reason="no"), cached=False, wall_s=0.0, cpu_s=0.0)

    report = await ShippingBuilder(bus, Refusing(), tmp_path).build(build_job(CANDIDATE, TARGET))
    assert report.outcome == DidNotBuild(reason="no")


async def test_a_store_that_is_full_keeps_what_is_being_judged_and_loses_the_others(
    bus: MemoryBus, built: Built, inner: StoreEvaluator, tmp_path: Path
) -> None:
    other = tmp_path / "evaluator" / "older"
    other.mkdir(parents=True)
    (other / "meta.json").write_bytes(b"{}")
    evaluator = FetchingEvaluator(bus, inner, tmp_path / "evaluator", store_bytes=1)
    await evaluator.evaluate(job_of(built.blob))
    assert inner.products == [b"program"]
    assert [path.name for path in (tmp_path / "evaluator").iterdir()] == [ID]
