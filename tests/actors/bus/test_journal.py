# ruff: noqa: ASYNC240  (the tests look at a file between two steps of one task; nobody waits meanwhile)
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from actors.bus import journal
from actors.bus.journal import JournalStore, read_journal
from actors.bus.memory import MemoryBus
from messages.base import BusError
from messages.codec import encode
from messages.events import CandidateEvaluated, ClockTicked
from messages.facts import Decided
from messages.verdicts import Measured, Wrong

pytestmark = pytest.mark.anyio

RUN = "r1"


def tick(number: int) -> bytes:
    return encode(ClockTicked(elapsed_s=float(number)))


def open_bus(path: Path) -> MemoryBus:
    return MemoryBus(lambda _: JournalStore(path, sync="never"), now=lambda: "2026-01-31T12:00:00+00:00")


async def write(path: Path, count: int) -> None:
    bus = open_bus(path)
    first = await bus.open_stream(RUN)
    for number in range(first, first + count):
        await bus.publish(RUN, tick(number), msg_id=f"m{number}")
    bus.close()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A journal of three records."""
    path = tmp_path / "journal.jsonl"
    await write(path, 3)
    return path


async def test_a_record_is_one_line_that_people_can_read(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == (
        '{"seq":1,"at":"2026-01-31T12:00:00+00:00","msg_id":"m0","body":{"type":"clock.ticked.v1","elapsed_s":0.0}}'
    )


@pytest.mark.parametrize("torn", [b'{"at":"2026', b"\x00\x00\x00\n", b'{"at":"\xff"}\n', b'{"at"\n', b"\n"], ids=repr)
async def test_a_torn_last_line_is_owed_again(path: Path, torn: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    assert len(list(read_journal(path))) == 3
    assert path.read_bytes() == whole + torn, "reading changes nothing"
    with capture_logs() as logs:
        await write(path, 1)
    assert [(entry["event"], entry["line"], entry["bytes"]) for entry in logs] == [
        ("torn last line cut off", 4, len(torn))
    ]
    assert path.read_bytes().startswith(whole)
    assert [record.msg_id for record in read_journal(path)] == ["m0", "m1", "m2", "m3"]


async def test_a_whole_last_line_without_its_newline_is_owed_again(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    await write(path, 1)
    assert [record.msg_id for record in read_journal(path)] == ["m0", "m1", "m2"]


DAMAGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "garbage": (lambda lines: [lines[0], b"gar\xffbage\n", lines[2]], "line 2: not a JSON record"),
    "no record": (lambda lines: [lines[0], b"42\n", lines[2]], "line 2: Expected `object`, got `int`"),
    "no record at the end": (lambda lines: [*lines, b"{}\n"], "line 4: Object missing required field `seq`"),
    "gap": (lambda lines: [lines[0], lines[2]], "line 2: record 3 stands where record 2 belongs"),
    "twice": (lambda lines: [lines[0], lines[0]], "line 2: record 1 stands where record 2 belongs"),
    "two torn lines": (lambda lines: [*lines, b'{"at\n', b'{"at'], "line 4: not a JSON record"),
    "newer": (
        lambda lines: [lines[0], lines[1].replace(b"ticked.v1", b"ticked.v2"), lines[2]],
        "line 2: 'clock.ticked.v2' is not known to this release",
    ),
    "newer at the end": (
        lambda lines: [*lines, lines[2].replace(b"ticked.v1", b"ticked.v2")],
        "line 4: 'clock.ticked.v2' is not known to this release",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_damaged_journal_is_an_error_that_names_the_line(path: Path, name: str) -> None:
    damage, complaint = DAMAGES[name]
    damaged = b"".join(damage(path.read_bytes().splitlines(keepends=True)))
    path.write_bytes(damaged)
    with pytest.raises(BusError, match=f"{re.escape(str(path))}, {re.escape(complaint)}"):
        list(read_journal(path))
    with pytest.raises(BusError, match=re.escape(complaint)):
        await open_bus(path).open_stream(RUN)
    assert path.read_bytes() == damaged, "what cannot be understood is not touched"


async def test_a_second_writer_is_refused_and_told_who_writes(path: Path) -> None:
    first = open_bus(path)
    await first.open_stream(RUN)
    with pytest.raises(BusError, match=rf"in use by (process {os.getpid()}|another process)"):
        await open_bus(path).open_stream(RUN)
    assert len(list(read_journal(path))) == 3, "readers need no lock"
    first.close()
    await write(path, 1)


async def test_a_failed_opening_leaves_the_journal_unlocked(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(BusError):
        await open_bus(path).open_stream(RUN)
    path.write_bytes(whole)
    await write(path, 1)


async def test_a_journal_that_cannot_be_made_is_a_bus_error(tmp_path: Path) -> None:
    missing = tmp_path / "no" / "journal.jsonl"
    with pytest.raises(BusError, match="No such file"):
        await open_bus(missing).open_stream(RUN)
    with pytest.raises(BusError, match="No such file"):
        list(read_journal(missing))


@pytest.mark.parametrize(
    "verdict",
    [
        Wrong(reason="all NaN", max_abs_error=float("nan")),
        Wrong(reason="all inf", max_abs_error=float("inf")),
        Measured(timed=True, latency_us=float("nan")),
    ],
    ids=str,
)
async def test_what_json_cannot_hold_is_refused_and_not_written_as_null(path: Path, verdict: Wrong | Measured) -> None:
    bus = open_bus(path)
    await bus.open_stream(RUN)
    poison = encode(CandidateEvaluated(job_id="j", candidate_id="c", verdict=verdict, device="cpu"))
    with pytest.raises(BusError, match="cannot be kept in a journal"):
        await bus.publish(RUN, poison, msg_id="bad")
    assert await bus.publish(RUN, tick(3), msg_id="m3") == 4
    bus.close()
    assert [record.msg_id for record in read_journal(path)] == ["m0", "m1", "m2", "m3"]


async def test_what_is_no_event_is_refused(path: Path) -> None:
    bus = open_bus(path)
    await bus.open_stream(RUN)
    with pytest.raises(BusError, match="cannot be kept in a journal"):
        await bus.publish(RUN, b"\xc1", msg_id="bad")
    bus.close()


async def test_the_fence_is_for_decisions_only_since_a_reload_could_not_tell(path: Path) -> None:
    bus = open_bus(path)
    await bus.open_stream(RUN)
    with pytest.raises(BusError, match="with a fence"):
        await bus.publish(RUN, tick(3), msg_id="m3", expected_last_decision=0)
    with pytest.raises(BusError, match="with a fence"):
        await bus.publish(RUN, encode(Decided(cause=1, facts=())), msg_id="d1")
    bus.close()


@pytest.mark.parametrize("sync", ["always", "never"])
async def test_a_full_disk_is_a_bus_error_and_ends_the_writing(sync: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    store = JournalStore(full, sync="always" if sync == "always" else "never")
    bus = MemoryBus(lambda _: store)
    store._fd = os.open(full, os.O_WRONLY)  # a device cannot be loaded; it only stands for a disk without room
    store.load = lambda: ()  # type: ignore[method-assign]
    await bus.open_stream(RUN)
    for number in range(2):
        with pytest.raises(BusError, match="No space left"):
            await bus.publish(RUN, tick(number), msg_id=f"m{number}")
    bus.close()


async def test_concurrent_publishers_share_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    syncs: list[int] = []
    sync_data = os.fdatasync

    def sync(fd: int) -> None:
        syncs.append(path.stat().st_size)
        sync_data(fd)

    monkeypatch.setattr(journal, "_sync_data", sync)
    bus = MemoryBus(lambda _: JournalStore(path, sync="always"))
    await bus.open_stream(RUN)
    durable_bytes: list[int] = []

    async def publish(number: int) -> None:
        await bus.publish(RUN, tick(number), msg_id=f"m{number}")
        durable_bytes.append(syncs[-1])

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(publish, number)
    bus.close()
    assert len(list(read_journal(path))) == 50
    assert len(syncs) <= 5
    assert durable_bytes[-1] == path.stat().st_size


async def test_what_has_its_number_is_written_though_its_publisher_is_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    bus = MemoryBus(lambda _: JournalStore(path, sync="always"))
    await bus.open_stream(RUN)

    async def publish(number: int) -> None:
        await bus.publish(RUN, tick(number), msg_id=f"m{number}")

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(publish, number)
        while await bus.open_stream(RUN) < 5:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    bus.close()
    assert [record.msg_id for record in read_journal(path)] == ["m0", "m1", "m2", "m3", "m4"]


async def test_old_entries_are_read_from_the_file_and_new_ones_from_memory(tmp_path: Path) -> None:
    store = JournalStore(tmp_path / "journal.jsonl", sync="never")
    bus = MemoryBus(lambda _: store)
    await bus.open_stream(RUN)
    count = journal.TAIL_ENTRIES + 200
    for number in range(count):
        await bus.publish(RUN, tick(number), msg_id=f"m{number}")
    seen: list[str] = []
    while len(seen) < count:
        batch = store.read(len(seen), 77)
        assert 0 < len(batch) <= 77
        seen += [entry.msg_id for entry in batch]
        assert batch[-1].payload == tick(len(seen) - 1)
    assert seen == [f"m{number}" for number in range(count)]
    assert store.read(count, 77) == ()
    assert len(store._tail) == journal.TAIL_ENTRIES
    bus.close()


async def test_long_spans_are_read_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SPAN_BYTES", 10)
    store = JournalStore(path, sync="never")
    store.load()
    assert [[entry.seq for entry in store.read(after, 128)] for after in range(4)] == [[1], [2], [3], []]
    store.close()


WRITER = """
import sys
from pathlib import Path
import anyio
from actors.bus.journal import JournalStore
from actors.bus.memory import MemoryBus
from messages.codec import encode
from messages.events import ClockTicked

async def main():
    bus = MemoryBus(lambda _: JournalStore(Path(sys.argv[1]), sync=sys.argv[2]))
    number = await bus.open_stream("r1")
    while True:
        await bus.publish("r1", encode(ClockTicked(elapsed_s=float(number))), msg_id=f"m{number}")
        number += 1
        print(number, flush=True)

anyio.run(main)
"""


@pytest.mark.parametrize("sync", ["always", "never"])
def test_whatever_publish_returned_for_survives_kill_9(tmp_path: Path, sync: str) -> None:
    path = tmp_path / "journal.jsonl"
    published = 0
    for session in range(3):
        command = [sys.executable, "-c", WRITER, str(path), sync]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(5 + 40 * session):
                published = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            for line in writer.stdout:
                published = int(line)
        assert [record.msg_id for record in read_journal(path)][:published] == [f"m{n}" for n in range(published)]
