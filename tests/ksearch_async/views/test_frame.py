"""What a frame of the live view holds, and that it fits every terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ksearch_async.runs.run import Run
from ksearch_async.views.lines import Narrator
from ksearch_async.views.live import frame_lines
from ksearch_async.views.progress import Progress
from ksearch_async.views.text import columns_of
from messages.base import Usage
from messages.codec import Record
from messages.events import CandidateEvaluated
from messages.facts import SpendRecorded
from messages.verdicts import Interval, Outpaced, Unstable, Wrong
from tests.ksearch_async.journals import real_journal
from tests.ksearch_async.stories import SLOPPY, attempt, decided, inserted, records_of, story

SIZES = ((160, 50), (80, 24), (79, 17), (40, 12), (24, 6), (20, 4), (8, 2), (1, 1))


def frame(records: list[Record], width: int = 100, rows: int = 24) -> list[str]:
    chronicle = Run()
    progress = Progress(chronicle, Narrator(chronicle))
    for record in records:
        list(progress.tell(record))
    now = datetime.fromisoformat(records[-1].at) + timedelta(seconds=2) if records else datetime.now(UTC)
    return [line.plain.rstrip() for line in frame_lines(progress, now=now, width=width, rows=rows)]


def test_a_frame_says_rounds_best_curve_fates_model_what_is_in_flight_and_the_tree() -> None:
    lines = frame(story(None))
    assert lines[0].startswith("relu (cpp)  AMD EPYC")
    assert lines[0].endswith("14 s, about 0 s left")
    assert lines[1:] == [
        "rounds  " + "█" * 40 + " 2 of 2",
        "best    2.00x the reference [1.90, 2.10], 50.0 us  round 2, n1",
        "curve   2.00x █ 2.00x",
        "flight  nothing",
        "devices AMD EPYC 0% busy",
        "model   0 in flight, 2 calls, 20 tokens",
        "fates   1 measured, 1 wrong",
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
    chronicle = Run()
    progress = Progress(chronicle, Narrator(chronicle))
    for record in records:
        list(progress.tell(record))
        for width, rows in SIZES:
            lines = frame_lines(progress, now=datetime.fromisoformat(record.at), width=width, rows=rows)
            assert 1 <= len(lines) <= rows
            assert all(line.cell_len <= width and "\n" not in line.plain for line in lines)


@pytest.mark.anyio
async def test_a_wide_terminal_has_the_figures_beside_the_tree(tmp_path: Path) -> None:
    lines = frame(await real_journal(tmp_path), 159, 46)
    left, right = zip(*(line.split(" │", 1) for line in lines[1:-1]), strict=True)
    labels = [line.split()[0] for line in left if line[:1].strip()]
    assert labels == ["rounds", "best", "curve", "flight", "devices", "model", "fates", "latest"]
    assert right[0].startswith(" tree    ")
    assert sum("★" in line for line in right) == 1
    assert len(lines) > 30  # the height is used
    assert len({columns_of(line[: line.index(" │")]) for line in lines[1:-1]}) == 1


def test_a_wide_terminal_of_few_rows_has_one_line_of_each_and_what_is_left_for_what_says_most() -> None:
    lines = frame(story(None), 130, 14)
    assert len(lines) <= 14
    assert [line.split()[0] for line in lines[1:-1] if line[:1].strip()] == [
        "rounds", "best", "curve", "flight", "devices", "model", "fates", "latest",
    ]  # fmt: skip


def test_money_is_said_beside_its_limit_with_the_answers_that_have_no_price() -> None:
    records = story(None)
    usage = Usage(calls=1, prompt_tokens=10)
    spent = [SpendRecorded(role="coder", usage=usage, cost_usd=cost) for cost in (0.5, 0.33, None)]
    lines = frame([*records, *records_of([decided(*spent)], after=len(records))])
    assert "model   0 in flight, 5 calls, 50 tokens, $0.83 + 3 unpriced" in lines


def test_where_columns_are_few_the_best_keeps_its_interval_and_the_model_its_money() -> None:
    records = story(None)
    spent = SpendRecorded(role="coder", usage=Usage(calls=1, prompt_tokens=10), cost_usd=0.5)
    lines = frame([*records, *records_of([decided(spent)], after=len(records))], 38, 12)
    assert "best    2.00x [1.90, 2.10]" in lines
    assert "model   0 in flight, $0.50 + 2 unpric…" in lines


def test_each_device_says_how_busy_it_is_and_those_without_room_are_counted() -> None:
    records = story(None)
    verdicts = [
        CandidateEvaluated(
            job_id=f"e{unit}",
            candidate_id="c",
            verdict=Wrong(reason="1 of 2"),
            device="NVIDIA H200",
            unit=f"cuda:{unit}",
            lease_s=unit,
        )
        for unit in range(8)
    ]
    told = [*records, *records_of(verdicts, after=len(records))]
    narrow = next(line for line in frame(told, 60) if line.startswith("devices"))
    assert narrow == "devices cuda:7 32% busy, cuda:6 27% busy, cuda:5 23% busy +6"
    wide = frame(told, 159, 46)
    assert sum("% busy" in line for line in wide) == 9  # AMD EPYC too


def test_titles_of_any_signs_keep_the_columns_in_line_and_do_nothing() -> None:
    acting = ["\x1b]0;owned\x07\x1b[2J", "\u202eright to left"]
    titles = ["行列の積を" * 20, "e\u0301" * 30, "\u2764\ufe0f" * 9, "x" * 10**6, *acting]
    grown = decided(*(inserted(f"n{number}", "n0", title) for number, title in enumerate(titles, 2)))
    records = [*story(None), *records_of([grown], after=len(story(None)))]
    for width in (60, 159):
        lines = frame(records, width, 40)
        tree = [line.rpartition(" │ ")[2] if width > 120 else line for line in lines if "open, V" in line]
        assert len(tree) == len(titles)
        assert len({columns_of(line[: line.index("open, V")]) for line in tree}) == 1
        assert all(line.isprintable() and columns_of(line) <= width for line in lines)


def test_where_columns_are_few_the_clock_is_told_without_what_is_left() -> None:
    assert frame(story(None), 39, 12)[0] == "relu (cpp)  AMD EPYC               14 s"
    assert frame(story(None), 24, 12)[0] == "relu (cpp)  AMD E…  14 s"
