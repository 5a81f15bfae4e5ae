"""Words that the tests of workers on a shared bus have in common."""

from __future__ import annotations

import msgspec

from actors.bus.base import Bus, QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from messages.base import Role
from messages.codec import encode
from messages.commands import BuildCandidate
from messages.events import Built, CandidateBuilt
from messages.presence import Presence, RunCard, WorkerState, decode_presence, encode_entry, node_key, run_key
from messages.subjects import build_jobs
from messages.tasks import Candidate, SourceFile, Target

STAMP = "2026-01-01T00:00:00.000000+00:00"
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 13", device="CPU")
CANDIDATE = Candidate(language="cpp", entry_point="f", files=(SourceFile(path="a.cpp", text="int x;"),))


def memory_bus() -> MemoryBus:
    return MemoryBus(lambda _: MemoryStore())


def builds(run_id: str) -> str:
    return build_jobs(run_id, "cpp", TARGET.arch)


def card(run_id: str, *, weight: int = 1) -> RunCard:
    return RunCard(
        run_id=run_id,
        task_name="t",
        language="cpp",
        target=TARGET,
        weight=weight,
        submitted_at=STAMP,
        updated_at=STAMP,
    )


async def put_card(bus: Bus, told: RunCard) -> None:
    entry = await bus.get(run_key(told.run_id))
    await bus.put(run_key(told.run_id), encode_entry(told), revision=entry.revision if entry else 0)


async def open_build_run(bus: Bus, run_id: str, *, weight: int = 1, ack_wait_s: float = 30.0) -> str:
    """Make a run that has its card, stream and queue, and return the queue."""
    await bus.open_stream(run_id)
    await bus.declare_queue(QueueSpec(name=builds(run_id), run_id=run_id, ack_wait_s=ack_wait_s, max_jobs=10_000))
    await put_card(bus, card(run_id, weight=weight))
    return builds(run_id)


def build_job(number: int, run_id: str) -> BuildCandidate:
    return BuildCandidate(job_id=f"{run_id}-x{number}", run_id=run_id, candidate=CANDIDATE, target=TARGET)


async def submit_build(bus: Bus, number: int, run_id: str) -> str:
    job = build_job(number, run_id)
    await bus.submit(builds(run_id), encode(job), msg_id=job.job_id)
    return job.job_id


def built(command: BuildCandidate) -> CandidateBuilt:
    return CandidateBuilt(
        job_id=command.job_id,
        candidate_id=command.candidate.candidate_id,
        outcome=Built(artifact_id="a"),
        target=command.target,
    )


def presence(name: str = "builder-1", *, role: Role = "builder", state: WorkerState = "ready") -> Presence:
    return Presence(
        name=name, role=role, host="h", pid=1, version="0", state=state, slots=1, started_at=STAMP, seen_at=STAMP
    )


async def shown(bus: Bus, name: str = "builder-1", role: Role = "builder") -> Presence | None:
    """Return what a process says of itself on the bus."""
    entry = await bus.get(node_key(role, name))
    return None if entry is None else decode_presence(entry.value)


def without_times(told: Presence) -> Presence:
    return msgspec.structs.replace(told, seen_at=STAMP)
