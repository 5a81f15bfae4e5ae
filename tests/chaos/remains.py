"""What is there when a play is over: the stream, the journal, the model's ledger, leases and queues."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import msgspec

from actors.bus.base import Bus
from actors.bus.journal import read_journal
from actors.bus.nats.local_server import NatsServer
from actors.bus.stream import body_of
from actors.llm.served.app import Report
from evaluators.process.device_lease import HostLease
from messages.codec import Record
from messages.presence import lease_key
from tests.chaos.checks import differences, losses, not_a_beginning, paid_twice, problems_of_run, unfoldable

_LEASE_S = 20.0
"""Longer than a lease lives without its holder."""
_TIMING_S = 30.0
"""Longer than others on this host, tests beside this one among them, time without a pause."""


class _Stream(msgspec.Struct, frozen=True):
    name: str


class _Account(msgspec.Struct, frozen=True):
    stream_detail: list[_Stream] = []


class _Jetstream(msgspec.Struct, frozen=True):
    account_details: list[_Account] = []


async def records_of(bus: Bus, run_id: str) -> list[Record]:
    """Read a run's stream to its present end."""
    last, records = await bus.open_stream(run_id), list[Record]()
    events = bus.events(run_id)
    async for posted in events:
        body = body_of(posted)
        if body is not None:
            records.append(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body))
        if posted.seq >= last:
            break
    await events.aclose()
    return records


async def problems_of_play(
    *, bus: Bus, server: NatsServer, report: Report, run_id: str, folder: Path, rounds: int
) -> list[str]:
    """Check everything that a run leaves behind while its server is still there."""
    records = await records_of(bus, run_id)
    copy, *others = await anyio.to_thread.run_sync(_journals, folder, run_id)
    if unfoldable(records):
        return problems_of_run(records, rounds=rounds)
    return [
        *problems_of_run(records, rounds=rounds),
        *differences(records, copy),
        *(problem for other in others for problem in not_a_beginning(records, other)),
        *paid_twice(report, records),
        *await _leaked_leases(bus, run_id),
        *await _left_queues(server, run_id),
    ]


def _journals(folder: Path, run_id: str) -> list[list[Record]]:
    """Read the journal of the run's folder, and those that planners have kept beside it."""
    own = folder / "runs" / run_id / "journal.jsonl"
    return [list(read_journal(path)) for path in (own, *folder.glob(f"planner-*/{run_id}/journal.jsonl"))]


async def lost_jobs(bus: Bus, run_id: str) -> list[str]:
    """Name the jobs that were lost and asked for again, and why."""
    return [f"{loss.job_id}: {loss.error}" for loss in losses(await records_of(bus, run_id))]


async def _leaked_leases(bus: Bus, run_id: str) -> list[str]:
    with anyio.move_on_after(_LEASE_S):
        while await bus.get(lease_key(run_id)) is not None:  # noqa: ASYNC110 - entries set no event
            await anyio.sleep(0.5)
    found = []
    entry = await bus.get(lease_key(run_id))
    if entry is not None:
        found.append(f"{entry.value.decode()} still has the lease of the run")
    with anyio.move_on_after(_TIMING_S) as waiting:
        async with HostLease():
            pass
    if waiting.cancelled_caught:
        found.append("somebody still has the timing lease of this host")
    return found


async def _left_queues(server: NatsServer, run_id: str) -> list[str]:
    """Name the run's queues that are still on the server; a consumer is gone with its queue."""
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
        answer = await client.get(f"{server.monitoring_url}/jsz?accounts=1&streams=1")
    told = msgspec.json.decode(answer.content, type=_Jetstream)
    names = [stream.name for account in told.account_details for stream in account.stream_detail]
    if not any(name.endswith(run_id) for name in names):
        return ["the server's monitoring shows nothing of the run"]
    left = [name for name in names if name.startswith("KS_JOB_") and name.endswith(run_id)]
    return [f"queue {name} is still on the server" for name in left]
