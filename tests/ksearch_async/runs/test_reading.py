"""A run's records, from its journal and from a real server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from actors.bus.base import Bus
from actors.bus.journal import SPAN_BYTES
from actors.bus.nats import NatsOptions, open_nats
from actors.bus.nats.local_server import ServerSettings, serve_nats
from ksearch_async.runs.feed import Batch, Feed, JournalFeed, JournalReader, StreamFeed
from messages.base import BusError, Role, Usage
from messages.codec import Record, encode, encode_line
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten
from tests.contracts.feeds import FeedContract, collected, reached, told, until_current
from tests.ksearch_async.stories import RUN_ID, sequel, story

pytestmark = pytest.mark.anyio
LOOK_S = 0.005
_WHO_SAYS: dict[type, Role] = {CandidateEvaluated: "evaluator", CandidateBuilt: "builder"}


class JournalRun:
    """Appends to a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.feed: Feed = JournalFeed(path, look_s=LOOK_S)
        path.touch()

    async def append(self, record: Record) -> None:
        self.write(encode_line(record))

    def write(self, text: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(text)


class StreamRun:
    """Publishes on a bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.feed: Feed = StreamFeed(bus, RUN_ID)

    async def append(self, record: Record) -> None:
        role = _WHO_SAYS.get(type(record.body), "planner")
        await self._bus.publish(RUN_ID, encode(record.body), msg_id=record.msg_id, role=role)


class TestJournalFeed(FeedContract):
    @pytest.fixture
    def run(self, tmp_path: Path) -> JournalRun:
        return JournalRun(tmp_path / "journal.jsonl")

    def test_a_torn_last_line_is_waited_for(self, run: JournalRun) -> None:
        lines = [encode_line(record) for record in story()]
        reader = JournalReader(run.path)
        run.write(b"".join(lines[:3]) + lines[3][:40])
        assert reader.read().records == tuple(story()[:3])
        run.write(lines[3][40:-1])
        assert reader.read() == Batch(is_current=True)
        run.write(b"\n")
        assert reader.read().records == (story()[3],)

    @pytest.mark.parametrize("torn", [b'{"seq":4,"at"', b'{"seq":4,"at"\n'])
    async def test_a_run_that_is_resumed_goes_on_where_its_last_line_was_torn(
        self, run: JournalRun, torn: bytes
    ) -> None:
        whole = b"".join(encode_line(record) for record in story()[:3])
        run.write(whole + torn)
        async with collected(run.feed) as seen:
            await reached(seen, 3)
            os.truncate(run.path, len(whole))
            run.write(encode_line(story()[3]))
            await reached(seen, 4)
        assert seen.records == story()[:4]

    async def test_a_bad_line_in_the_middle_is_an_error_that_names_it(self, run: JournalRun) -> None:
        first, _, third = (encode_line(record) for record in story()[:3])
        run.write(first + b'{"seq": 2, "body": {}}\n' + third)
        with pytest.raises(BusError, match="line 2"):
            await until_current(run.feed)
        run.path.write_bytes(first + third)
        with pytest.raises(BusError, match="line 2: record 3 stands where record 2 belongs"):
            await until_current(run.feed)

    async def test_records_may_be_missing_where_the_next_one_says_so(self, run: JournalRun) -> None:
        first, _, third = story()[:3]
        recorded = [first, msgspec.structs.replace(third, after=1)]
        run.write(b"".join(map(encode_line, recorded)))
        assert told(await until_current(run.feed)) == [(1, first.body), (3, third.body)]

    async def test_a_line_longer_than_what_is_read_at_once_is_read(self, run: JournalRun) -> None:
        answer = CandidateWritten(
            job_id="w",
            branch_id="b2",
            candidate=None,
            prompt="",
            answer="x" * (2 * SPAN_BYTES + 17),
            model="m",
            usage=Usage(),
            latency_s=0.0,
        )
        long = msgspec.structs.replace(story()[1], body=answer)
        run.write(b"".join(map(encode_line, [story()[0], long, story()[2]])))
        batches = await until_current(run.feed)
        assert [seq for seq, _ in told(batches)] == [1, 2, 3]
        assert batches[0].records[0] == story()[0]
        assert batches[1].records[0] == long

    def test_another_journal_in_its_place_is_an_error(self, run: JournalRun, tmp_path: Path) -> None:
        run.write(b"".join(map(encode_line, sequel())))
        reader = JournalReader(run.path)
        assert reader.read().is_current
        fresh = tmp_path / "fresh"
        fresh.write_bytes(run.path.read_bytes())
        fresh.replace(run.path)
        with pytest.raises(BusError, match="was replaced"):
            reader.read()

    def test_a_journal_that_was_cut_short_is_an_error(self, run: JournalRun) -> None:
        run.write(b"".join(map(encode_line, sequel())))
        reader = JournalReader(run.path)
        assert reader.read().is_current
        os.truncate(run.path, 10)
        with pytest.raises(BusError, match="was replaced"):
            reader.read()

    async def test_neither_links_nor_pipes_are_read(self, run: JournalRun, tmp_path: Path) -> None:
        link, pipe = tmp_path / "link", tmp_path / "pipe"
        link.symlink_to(run.path)
        os.mkfifo(pipe)
        for path in (link, pipe, tmp_path / "none"):
            with pytest.raises(BusError, match="journal"):
                await until_current(JournalFeed(path))


@pytest.mark.nats
class TestStreamFeed(FeedContract):
    @pytest.fixture
    async def run(self, tmp_path: Path) -> AsyncIterator[StreamRun]:
        async with (
            serve_nats(ServerSettings(store=tmp_path / "nats", sync="never")) as server,
            open_nats(NatsOptions(servers=(server.url,))) as bus,
        ):
            await bus.prepare()
            await bus.open_stream(RUN_ID)
            yield StreamRun(bus)
