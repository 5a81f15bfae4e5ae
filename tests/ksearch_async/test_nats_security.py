"""What the server lets nobody do, with real servers and clients that know no manners."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import anyio
import msgspec
import pytest

from actors.bus.base import Posted, QueueSpec
from actors.bus.nats import open_nats
from actors.bus.nats.names import NatsOptions
from ksearch_async.fleet.access import TEAM, TeamRole
from messages.base import BusError
from messages.presence import lease_key, node_key
from messages.subjects import build_jobs, evaluate_jobs, write_jobs
from tests.ksearch_async.nats_servers import PATIENCE_S, Team, TeamServer, serve_team

pytestmark = [pytest.mark.anyio, pytest.mark.nats]

RUN = "r1"
EVALUATE, BUILD, WRITE = evaluate_jobs(RUN, "cpp", "x86"), build_jobs(RUN, "cpp", "x86"), write_jobs(RUN)
WRONG = "not-the-Password-7"


@pytest.fixture
async def server(tmp_path: Path, team: Team) -> AsyncIterator[TeamServer]:
    """A server with a run that has a queue of each kind, a job in each, an event and a lease."""
    async with serve_team(tmp_path / "store", team) as server:
        async with server.bus("planner") as bus:
            await bus.open_stream(RUN)
            for queue in (EVALUATE, BUILD, WRITE):
                await bus.declare_queue(QueueSpec(name=queue, run_id=RUN))
                await bus.submit(queue, b"a job", msg_id="j1")
            await bus.publish(RUN, b"the first decision", msg_id="d1", expected_last_decision=0)
            await bus.put(lease_key(RUN), b"the planner", revision=0)
        yield server


def stream_of(queue: str) -> str:
    return "KS_JOB_" + queue.removeprefix("ks.job.").replace(".", "_")


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="no credentials"),
        pytest.param({"user": "evaluator", "password": WRONG}, id="a wrong password"),
        pytest.param({"user": "nobody", "password": WRONG}, id="an unknown user"),
        pytest.param({"user": "evaluator", "password": ""}, id="no password"),
    ],
)
async def test_a_stranger_is_turned_away_at_once_and_told_so(server: TeamServer, options: dict[str, str]) -> None:
    stranger = NatsOptions(servers=(server.server.url,), patience_s=10 * PATIENCE_S, **options)  # type: ignore[arg-type]
    with anyio.fail_after(PATIENCE_S), pytest.raises(BusError, match="does not let us in") as error:
        async with open_nats(stranger):
            pass
    assert WRONG not in str(error.value)
    assert "\n" not in str(error.value)


FORBIDDEN = {
    "jobs": (f"{EVALUATE}.j9", f"{BUILD}.j9", f"{WRITE}.j9"),
    "words of others": (f"ks.evt.{RUN}.coder.j9_r", f"ks.evt.{RUN}.builder.j9_r", f"ks.evt.{RUN}.planner.x"),
    "decisions": (f"ks.evt.{RUN}.decision",),
    "state": (f"$KV.ks.run.{RUN}", f"$KV.ks.lease.{RUN}", f"$KV.ks.cancel.{RUN}", "$KV.ks.node.coder.x", "$KV.other.x"),
    "blobs": (f"ks.blob.{RUN}.{'0' * 64}.0",),
    "dead letters of others": (f"ks.dead.{RUN}.write.j1", f"ks.dead.{RUN}.build.j1"),
    "advisories": (f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{stream_of(EVALUATE)}.evaluate",),
    "streams": tuple(
        f"$JS.API.STREAM.{call}.KS_EVT_{RUN}"
        for call in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "MSG.GET", "SNAPSHOT", "RESTORE")
    ),
    "consumers": (
        f"$JS.API.CONSUMER.CREATE.KS_EVT_{RUN}.mine",
        f"$JS.API.CONSUMER.DURABLE.CREATE.KS_EVT_{RUN}.mine",
        f"$JS.API.CONSUMER.DELETE.{stream_of(EVALUATE)}.evaluate",
        f"$JS.API.CONSUMER.PAUSE.{stream_of(EVALUATE)}.evaluate",
    ),
    "jobs of others": (
        f"$JS.API.CONSUMER.MSG.NEXT.{stream_of(WRITE)}.write",
        f"$JS.ACK.{stream_of(WRITE)}.write.1.1.1.1.0",
    ),
    "the account": ("$JS.API.ACCOUNT.PURGE.KSEARCH", "$SYS.REQ.SERVER.PING", "$JS.API.SERVER.REMOVE"),
    "reading": (f"$JS.API.DIRECT.GET.KS_EVT_{RUN}", f"$JS.API.DIRECT.GET.{stream_of(WRITE)}"),
    "inboxes": ("_INBOX_planner.x", "_INBOX_evaluator.x", "_INBOX.x"),
    "bells": ("ks.bell.evaluate", "ks.bell.write"),
}


async def test_an_evaluator_can_neither_give_work_nor_change_what_is_there(server: TeamServer) -> None:
    before = await server.contents()
    async with server.intruder("evaluator") as intruder:
        passed = [
            subject
            for subjects in FORBIDDEN.values()
            for subject in subjects
            if await intruder.tries(subject, b"{}", reply="_INBOX_evaluator.x")
        ]
        assert passed == []
        assert intruder.client.is_connected, "a refusal is no reason to lose a node"
    assert await server.contents() == before


@pytest.mark.parametrize("role", ["evaluator", "coder", "builder", "watcher"])
async def test_nobody_reads_what_is_meant_for_others(server: TeamServer, role: TeamRole) -> None:
    others = [f"_INBOX_{other}.>" for other in TEAM if other != role]
    wild = [">", "*.>", "_INBOX.>", "*", "ks.>", "ks.job.>", f"ks.evt.{RUN}.>", "$KV.>", "$JS.>", "$SYS.>"]
    bells = [f"ks.bell.{kind}" for kind in ("write", "build", "evaluate")]
    own = {"evaluator": "ks.bell.evaluate", "coder": "ks.bell.write", "builder": "ks.bell.build"}.get(role)
    async with server.intruder(role) as intruder:
        heard = [subject for subject in (*others, *wild, *bells) if await intruder.listens(subject)]
    assert heard == ([own] if own else [])


@pytest.mark.parametrize("role", ["coder", "builder"])
async def test_coders_and_builders_decide_nothing_and_take_only_their_own_jobs(
    server: TeamServer, role: TeamRole
) -> None:
    own = {"coder": "write", "builder": "build"}[role]
    before = await server.contents()
    subjects = [
        *(subject for what in ("jobs", "decisions", "state", "streams", "consumers") for subject in FORBIDDEN[what]),
        *(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream_of(queue)}.{kind}"
            for queue, kind in ((EVALUATE, "evaluate"), (BUILD, "build"), (WRITE, "write"))
            if kind != own
        ),
        f"ks.evt.{RUN}.evaluator.j1_r",
        "$KV.ks.node.evaluator.x",
    ]
    subjects = [subject for subject in subjects if subject != f"$KV.ks.node.{role}.x"]
    async with server.intruder(role) as intruder:
        assert [subject for subject in subjects if await intruder.tries(subject, b"{}")] == []
    assert await server.contents() == before


async def test_a_watcher_changes_nothing(server: TeamServer) -> None:
    before = await server.contents()
    subjects = {subject for subjects in FORBIDDEN.values() for subject in subjects if "DIRECT.GET" not in subject}
    subjects |= {
        f"ks.evt.{RUN}.evaluator.x",
        "$KV.ks.node.evaluator.x",
        f"$JS.API.CONSUMER.MSG.NEXT.{stream_of(EVALUATE)}.evaluate",
        f"$JS.ACK.{stream_of(EVALUATE)}.evaluate.1.1.1.1.0",
    }
    async with server.intruder("watcher") as intruder:
        assert [subject for subject in sorted(subjects) if await intruder.tries(subject, b"{}")] == []
    assert await server.contents() == before


@pytest.mark.parametrize("role", ["evaluator", "coder", "builder", "watcher"])
async def test_no_answer_can_be_made_to_arrive_as_somebody_elses_word(server: TeamServer, role: TeamRole) -> None:
    """The server checks no right for the subject at which an answer is wanted."""
    async with server.bus("planner") as bus:
        digest = await bus.put_blob(RUN, b"forged")
        await bus.put(node_key("planner", "x"), b"forged", revision=0)
        await bus.publish(RUN, b"forged", msg_id="j7.r", role="planner")
    before = await server.contents()
    readable = (
        f"$JS.API.DIRECT.GET.KS_BLOB_{RUN}.ks.blob.{RUN}.{digest}.0",
        "$JS.API.DIRECT.GET.KV_ks.$KV.ks.node.planner.x",
        f"$JS.API.STREAM.INFO.KS_EVT_{RUN}",
    )
    targets = (
        f"ks.evt.{RUN}.decision",
        f"ks.evt.{RUN}.planner.x",
        f"{WRITE}.j9",
        f"$KV.ks.lease.{RUN}",
        f"$KV.ks.cancel.{RUN}",
        f"ks.dead.{RUN}.write.j1",
        f"$JS.API.STREAM.DELETE.KS_EVT_{RUN}",
        f"$JS.API.STREAM.PURGE.KS_EVT_{RUN}",
    )
    async with server.intruder(role) as intruder:
        for subject in readable:
            for target in targets:
                body = b"" if "DIRECT" in subject else b"{}"
                await intruder.tries(subject, body, reply=target)
        if role == "evaluator":
            for target in targets:
                await intruder.tries(f"$JS.API.CONSUMER.MSG.NEXT.{stream_of(EVALUATE)}.evaluate", b"", reply=target)
    assert await server.contents() == before


async def test_a_message_of_ones_own_cannot_roll_up_the_entries_of_others(server: TeamServer) -> None:
    async with server.intruder("evaluator") as intruder:
        for what in ("all", "sub"):
            await intruder.tries("$KV.ks.node.evaluator.x", b"mine", headers={"Nats-Rollup": what})
    async with server.bus("planner") as bus:
        held = await bus.get(lease_key(RUN))
    assert held is not None
    assert held.value == b"the planner"


async def test_nobody_can_use_up_the_ids_of_others(server: TeamServer) -> None:
    """A stream that has seen a message id takes the next one with it for a duplicate, whoever sent it."""
    numbers = {stream: first for stream, (_, first, _) in (await server.contents()).items()}
    ids = ["j1.r", "d2", "j1", *(f"{stream_of(queue)}.{numbers[stream_of(queue)]}" for queue in (WRITE, BUILD))]
    async with server.intruder("evaluator") as intruder:
        for number, msg_id in enumerate(ids):
            headers = {"Nats-Msg-Id": msg_id}
            await intruder.tries(f"ks.evt.{RUN}.evaluator.own{number}", b"mine", headers=headers)
            await intruder.tries(f"ks.dead.{RUN}.evaluate.own{number}", b"mine", headers=headers)
    async with server.bus("planner") as bus, server.bus("coder") as coder:
        await coder.publish(RUN, b"an answer", msg_id="j1.r", role="coder")
        seq = await bus.publish(RUN, b"the second decision", msg_id="d2", expected_last_decision=1)
        await (await coder.pull(WRITE)).term("broken")
        with anyio.fail_after(PATIENCE_S):
            letter = await bus.next_dead_letter(RUN)
        assert (letter.queue, letter.msg_id) == (WRITE, "j1")
        with anyio.fail_after(PATIENCE_S):
            async for posted in bus.events(RUN):
                if posted.seq == seq:
                    assert posted.payload == b"the second decision"
                    break
                assert posted.role == ("planner" if posted.seq == 1 else "evaluator") or posted.payload == b"an answer"


async def test_a_worker_reports_only_jobs_of_its_kind_as_dead(server: TeamServer) -> None:
    async with server.intruder("evaluator") as intruder:
        headers = {"Ks-Queue": WRITE, "Ks-Deliveries": "4", "Ks-Reason": "max_deliver"}
        await intruder.tries(f"ks.dead.{RUN}.evaluate.j1", b"forged", headers=headers)
    async with server.bus("planner") as bus, server.bus("coder") as coder:
        await (await coder.pull(WRITE)).term("the real one")
        with anyio.fail_after(PATIENCE_S):
            letter = await bus.next_dead_letter(RUN)
        assert letter.reason == "the real one"


async def test_every_role_can_do_its_work(server: TeamServer) -> None:
    work = {"evaluator": EVALUATE, "builder": BUILD, "coder": WRITE}
    async with server.bus("planner") as planner:
        digest = await planner.put_blob(RUN, os.urandom(1 << 20))
        for role, queue in work.items():
            async with server.bus(role) as bus:  # type: ignore[arg-type]
                job = await bus.pull(queue)
                await job.in_progress()
                assert await bus.find(RUN, "j1.r") is None
                await bus.publish(RUN, b"done", msg_id="j1.r", role=role)  # type: ignore[arg-type]
                assert await bus.find(RUN, "j1.r") is not None
                await job.ack()
                assert len(await bus.get_blob(RUN, digest)) == 1 << 20
                await bus.put(node_key(role, "x"), b"here", revision=0, ttl_s=60)  # type: ignore[arg-type]
                assert set(await bus.entries("node.")) >= {node_key(role, "x")}  # type: ignore[arg-type]
        async with server.bus("watcher") as watcher:
            assert len(await watcher.entries("node.")) == 3
            assert {depth.waiting for depth in await watcher.measure(RUN)} == {0}
            with anyio.fail_after(PATIENCE_S):
                seen = 0
                async for posted in watcher.events(RUN):
                    assert posted.role in ("planner", *work)
                    seen += 1
                    if seen == 4:
                        break


HEADERS = (
    b"NATS/1.0\r\nStatus: 404\r\n\r\n",
    b"NATS/1.0 503 gone\r\n\r\n",
    b"NATS/1.0\r\nNats-Sequence: 999999\r\nNats-Subject: ks.evt.r1.decision\r\nNats-Time-Stamp: never\r\n\r\n",
    b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nKV-Operation: PURGE\r\n\r\n",
    b"NATS/1.0\r\nKs-Id: \xff\r\nKs-Blob: ../../x\r\nKs-Size: -1\r\n\r\n",
    b"garbage\xff\r\n\r\n",
)
TOKENS = (b"plain", b"\xff\xfe", b"a%b", b"_", b"x" * 2000)


async def test_no_header_and_no_name_of_a_message_stops_who_reads(server: TeamServer) -> None:
    options = server.options("evaluator")
    sign_in = msgspec.json.encode(
        {"user": options.user, "pass": options.password, "headers": True, "verbose": False, "pedantic": False}
    )
    lines = [b"CONNECT " + sign_in]
    for token in TOKENS:
        for headers in HEADERS:
            for place in (
                b"ks.evt.%s.evaluator.%s" % (RUN.encode(), token),
                b"ks.dead.%s.evaluate.%s" % (RUN.encode(), token),
                b"$KV.ks.node.evaluator.%s" % token,
            ):
                size = len(headers)
                lines += [b"HPUB %s %d %d" % (place, size, size + 4), headers + b"what"]
    async with await anyio.connect_tcp("127.0.0.1", server.server.port) as socket:
        await socket.receive()
        await socket.send(b"\r\n".join([*lines, b"PING", b""]))
        with anyio.fail_after(PATIENCE_S):
            while b"PONG" not in await socket.receive():
                pass
    async with server.bus("planner") as bus, server.bus("watcher") as watcher, server.bus("evaluator") as evaluator:
        await evaluator.put(node_key("evaluator", "good"), b"here", revision=0, ttl_s=60)
        last = await bus.publish(RUN, b"the second decision", msg_id="d2", expected_last_decision=1)
        with anyio.fail_after(PATIENCE_S):
            for reader in (bus, watcher):
                seen = {posted.seq: posted async for posted in until(reader.events(RUN), last)}
                assert seen[last].payload == b"the second decision"
                assert [posted.seq for posted in seen.values() if posted.role == "planner"] == [1, last]
                assert len(seen) == 2 + len(HEADERS) * len(TOKENS)
                assert node_key("evaluator", "good") in await reader.entries("node.")
            await (await evaluator.pull(EVALUATE)).term("broken")
            letter = await bus.next_dead_letter(RUN)
            assert (letter.msg_id, letter.reason) == ("j1", "broken")


async def until(events: AsyncGenerator[Posted, None], last: int) -> AsyncIterator[Posted]:
    async for posted in events:
        yield posted
        if posted.seq == last:
            await events.aclose()
            return
