"""What a frame of the live view holds, and that it fits every terminal."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ksearch_async.chronicle import Chronicle
from ksearch_async.cli.frame import frame_lines, sparkline
from ksearch_async.narrate import Narrator
from ksearch_async.progress import Progress
from messages.codec import Record
from messages.verdicts import Interval, Outpaced, Unstable
from tests.ksearch_async.journals import real_journal
from tests.ksearch_async.stories import SLOPPY, attempt, records_of, story

SIZES = ((160, 50), (80, 24), (79, 17), (40, 12), (24, 6), (20, 4), (8, 2), (1, 1))


def frame(records: list[Record], width: int = 100, rows: int = 24) -> list[str]:
    chronicle = Chronicle()
    progress = Progress(chronicle, Narrator(chronicle))
    for record in records:
        list(progress.tell(record))
    now = datetime(2026, 11, 20, 14, 23, len(records) + 2, tzinfo=UTC)
    return [line.plain.rstrip() for line in frame_lines(progress, now=now, width=width, rows=rows)]


def test_a_frame_says_rounds_best_curve_fates_model_what_is_in_flight_and_the_tree() -> None:
    lines = frame(story(None))
    assert lines[0].startswith("relu (cpp)  AMD EPYC")
    assert lines[0].endswith("14 s, about 0 s left")
    assert lines[1:] == [
        "rounds  " + "█" * 40 + " 2 of 2",
        "best    2.00x the reference [1.90, 2.10], 50.0 us  round 2, n1",
        "curve   2.00x  █ 2.00x",
        "fates   1 measured, 1 wrong",
        "model   2 calls, 20 tokens",
        "flight  nothing",
        "tree    1 node: 1 in flight",
        "└─ n1 ★ fuse the passes  2.00x, waiting, 1 failed",
        "Ctrl-C stops when what is in flight is done",
    ]


def test_a_correct_candidate_is_no_failed_attempt_however_slow_or_unsteady_it_is() -> None:
    interval = Interval(low=0.1, high=0.2)
    slow = attempt(9, SLOPPY, Outpaced(reason="clearly slower", speedup_interval=interval))
    unsteady = attempt(12, SLOPPY, Unstable(reason="±80 %", speedup_interval=interval))
    lines = frame(records_of([record.body for record in story(None)] + slow + unsteady))
    assert "└─ n1 ★ fuse the passes  2.00x, waiting, 1 failed" in lines


def test_what_is_being_done_is_told_with_its_time() -> None:
    lines = frame(story(None)[:6])
    assert "flight  1 evaluating" in lines
    assert "└─ n1 fuse the passes  evaluating 2 s" in lines
    assert "flight  planning 2 s" in frame(story(None)[:2])


def test_before_the_first_record_there_is_a_frame_too() -> None:
    assert frame([])[1].startswith("rounds")


def test_where_rows_are_few_rounds_best_and_work_in_flight_stay() -> None:
    assert frame(story(None)[:6], rows=1)[0].startswith("rounds")
    few = frame(story(None)[:6], rows=6)
    assert [line.split()[0] for line in few] == ["rounds", "best", "flight", "└─"]


def test_a_person_who_asked_for_a_stop_is_told_what_is_waited_for() -> None:
    ended = frame(story("interrupted"))
    assert ended[-1].startswith("Ctrl-C")  # a run that is over waits for nothing


@pytest.mark.anyio
async def test_every_moment_of_a_real_run_fits_every_terminal(tmp_path: Path) -> None:
    records = await real_journal(tmp_path)
    chronicle = Chronicle()
    progress = Progress(chronicle, Narrator(chronicle))
    for record in records:
        list(progress.tell(record))
        for width, rows in SIZES:
            lines = frame_lines(progress, now=datetime.fromisoformat(record.at), width=width, rows=rows)
            assert 1 <= len(lines) <= rows
            assert all(line.cell_len <= width and "\n" not in line.plain for line in lines)


def test_a_sparkline_keeps_the_last_value_of_each_stretch_and_scales_to_the_largest() -> None:
    assert sparkline([0.0, 1.0, 2.0], 8) == " ▄█"
    assert sparkline([float(value) for value in range(1, 101)], 4) == "▂▄▆█"
    assert sparkline([], 4) == ""
