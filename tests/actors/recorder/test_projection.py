"""The copy of a stream on disk: what it holds, how it goes on, and that everybody can read it."""

from __future__ import annotations

import resource
from pathlib import Path

import anyio
import pytest
from structlog.testing import capture_logs

from actors.bus.base import Posted
from actors.bus.journal import JournalStore, read_journal
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.recorder import record_past, record_run
from actors.recorder.projection import Projection
from messages.base import BusError
from messages.codec import encode
from messages.events import ClockTicked
from tests.contracts.bus_streams import event

RUN = "r1"
AT = "2026-01-31T12:00:00.000000+00:00"


def tick(number: int) -> ClockTicked:
    return ClockTicked(elapsed_s=float(number))


def posted(seq: int) -> Posted:
    return Posted(seq=seq, at=AT, msg_id=f"m{seq}", payload=encode(tick(seq)), role="planner")


def copy(path: Path, *seqs: int) -> None:
    projection = Projection(path)
    for seq in seqs:
        projection.take(posted(seq), tick(seq))
    projection.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def numbers(path: Path) -> list[int]:
    return [record.seq for record in read_journal(path)]


def test_records_keep_their_numbers_where_some_are_left_out(path: Path) -> None:
    copy(path, 2, 3, 7)
    assert numbers(path) == [2, 3, 7]
    assert [record.after for record in read_journal(path)] == [0, None, 3]
    assert [record.body for record in read_journal(path)] == [tick(2), tick(3), tick(7)]


def test_it_goes_on_where_it_ends_and_takes_no_record_twice(path: Path) -> None:
    copy(path, 1, 2, 4)
    copy(path, 1, 2, 4, 5)
    copy(path, 5, 9)
    assert numbers(path) == [1, 2, 4, 5, 9]


@pytest.mark.parametrize("torn", [b'{"seq":3', b'{"seq":3,"at":"2026', b"\x00\x00\n"], ids=repr)
def test_a_torn_last_line_is_cut_off_and_copied_again(path: Path, torn: bytes) -> None:
    copy(path, 1, 2)
    path.write_bytes(path.read_bytes() + torn)
    with capture_logs() as logs:
        copy(path, 1, 2, 3)
    assert [(line["event"], line["bytes"]) for line in logs] == [("torn last line cut off", len(torn))]
    assert numbers(path) == [1, 2, 3]


def test_a_line_that_is_missing_is_an_error_although_numbers_may_be(path: Path) -> None:
    copy(path, 1, 3, 4, 5)
    lines = path.read_bytes().splitlines(keepends=True)
    for left_out, complaint in ((1, "line 2: record 4 stands where record 2 belongs"), (2, "line 3: record 5 stands")):
        path.write_bytes(b"".join(line for number, line in enumerate(lines) if number != left_out))
        with pytest.raises(BusError, match=complaint):
            numbers(path)
        with pytest.raises(BusError, match=complaint):
            copy(path, 6)


def test_a_folder_has_one_recorder(path: Path) -> None:
    first = Projection(path)
    with pytest.raises(BusError, match="in use by"):
        Projection(path)
    first.close()
    copy(path, 1)


def test_a_bus_of_one_process_does_not_go_on_with_a_copy(path: Path) -> None:
    copy(path, 1, 3)
    with pytest.raises(BusError, match="line 2: this is the recording of a run on a NATS server"):
        JournalStore(path, sync="never").load()
    assert numbers(path) == [1, 3]


def test_a_line_that_cannot_be_written_whole_is_taken_back(path: Path) -> None:
    copy(path, 1)
    whole = path.read_bytes()
    projection = Projection(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, hard))
    try:
        with pytest.raises(BusError, match="File too large"):
            projection.take(posted(2), tick(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (path.read_bytes(), projection.last_seq) == (whole, 1)
    projection.take(posted(2), tick(2))
    projection.close()
    assert numbers(path) == [1, 2]


@pytest.mark.anyio
async def test_a_recorder_copies_what_it_reads_and_goes_on_after_a_stop(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal.jsonl", MemoryStore()
    bus = MemoryBus(lambda _: store)
    await bus.open_stream(RUN)
    for number in range(1, 4):
        await bus.publish(RUN, event(number), msg_id=f"m{number}")
    await _record_until(bus, journal, [1, 2, 3])
    before = journal.read_bytes()
    await bus.publish(RUN, event(4), msg_id="m4")
    await _record_until(bus, journal, [1, 2, 3, 4])
    assert journal.read_bytes().startswith(before)


@pytest.mark.anyio
async def test_what_was_said_while_nobody_recorded_is_recorded_later(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal.jsonl", MemoryStore()
    copy(journal, 1)
    bus = MemoryBus(lambda _: store)
    await bus.open_stream(RUN)
    for number in range(1, 4):
        await bus.publish(RUN, event(number), msg_id=f"m{number}")
    for _ in range(2):
        with anyio.fail_after(10):
            await record_past(bus, run_id=RUN, folder=tmp_path, journal=journal)
        assert numbers(journal) == [1, 2, 3]


@pytest.mark.anyio
async def test_a_folder_of_another_run_of_the_same_name_is_refused(tmp_path: Path) -> None:
    copy(tmp_path / "journal.jsonl", 1, 2, 3)
    bus = MemoryBus(lambda _: MemoryStore())
    await bus.open_stream(RUN)
    await bus.publish(RUN, event(1), msg_id="m1")
    with pytest.raises(BusError, match="they are not the same run"):
        await record_run(bus, run_id=RUN, folder=tmp_path, journal=tmp_path / "journal.jsonl")
    copy(tmp_path / "journal.jsonl", 4)


async def _record_until(bus: MemoryBus, journal: Path, expected: list[int]) -> None:
    async with anyio.create_task_group() as tasks:

        async def record() -> None:
            await record_run(bus, run_id=RUN, folder=journal.parent, journal=journal)

        tasks.start_soon(record)
        with anyio.fail_after(10):
            while True:
                if await anyio.Path(journal).exists() and numbers(journal) == expected:
                    break
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()
