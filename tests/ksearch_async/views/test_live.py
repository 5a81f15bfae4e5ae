"""The live view on a terminal: a pseudo-terminal in front, and behind it a terminal in memory that shows the screen."""

from __future__ import annotations

import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from datetime import UTC, datetime
from fcntl import ioctl
from pathlib import Path
from select import select
from typing import Any, TextIO

import anyio
import anyio.to_thread
import pyte
import pytest
from rich.text import Text

from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Run
from ksearch_async.settings.run_config import RunConfig
from ksearch_async.views.live import Canvas, LiveView, can_be_live, frame_lines
from ksearch_async.views.plain import PlainView
from ksearch_async.views.terminal import legible
from tests.ksearch_async.stories import RUN_ID, story
from tests.ksearch_async.test_whole_run import PROBLEM

COLUMNS, ROWS = 60, 16


class Screen:
    """A terminal: `stream` is the program's side of it."""

    def __init__(self, stream: TextIO, reader: int) -> None:
        self.stream = stream
        self._reader = reader
        self._history = pyte.HistoryScreen(COLUMNS, ROWS, history=1000)
        self._parser = pyte.ByteStream(self._history)

    def resize(self, columns: int, rows: int) -> None:
        ioctl(self._reader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._history.resize(rows, columns)

    def wait_for(self, word: str, timeout_s: float = 10) -> None:
        """Return when the word stands on the screen."""
        while not any(word in line for line in self.lines()):
            assert select([self._reader], [], [], timeout_s)[0], f"no {word!r} on the screen: {self.lines()}"

    def lines(self) -> list[str]:
        """Return what is on the screen, without the empty lines below."""
        self.stream.flush()
        os.set_blocking(self._reader, False)
        try:
            while data := os.read(self._reader, 1 << 16):
                self._parser.feed(data)
        except BlockingIOError:
            pass
        shown = [line.rstrip() for line in self._history.display]
        while shown and not shown[-1]:
            shown.pop()
        return shown


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Screen]:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("LC_ALL", "LANG"):
        monkeypatch.setenv(name, "C.UTF-8")
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        screen = Screen(stream, reader)
        screen.resize(COLUMNS, ROWS)
        yield screen
    os.close(reader)


def frame(*lines: str) -> list[Text]:
    return [Text(line, "bold green") for line in lines]


def test_a_frame_takes_the_place_of_the_last_one_whatever_its_height(screen: Screen) -> None:
    canvas = Canvas(screen.stream)
    for lines in (("one", "two is longer", "three"), ("1", "2", "3", "4"), ("only",), ("a", "b")):
        canvas.write(canvas.draw([], frame(*lines)))
        assert screen.lines() == list(lines)


def test_a_frame_that_did_not_change_is_not_written(screen: Screen) -> None:
    canvas = Canvas(screen.stream)
    assert canvas.draw([], frame("same")) != ""
    assert canvas.draw([], frame("same")) == ""


def test_colours_are_written_for_the_parts_that_have_them(screen: Screen) -> None:
    line = Text.assemble(("dim", "dim"), " plain ", ("both", "dim green"), Text(" nested", "red"))
    drawn = Canvas(screen.stream).draw([], [line, Text("whole", "bold")])
    assert "\x1b[2mdim\x1b[m plain \x1b[2;32mboth\x1b[m\x1b[31m nested\x1b[m\x1b[K\n\x1b[1mwhole\x1b[m" in drawn


def test_lines_scroll_above_the_frame_and_stay_when_it_goes(screen: Screen) -> None:
    canvas = Canvas(screen.stream)
    canvas.write(canvas.draw([], frame("a frame that is rather wide", "of two")))
    canvas.write(canvas.draw(["first"], frame("frame", "of two")))
    canvas.write(
        canvas.draw(["second is rather longer than the terminal has columns, so that it wraps"], frame("frame"))
    )
    canvas.write(canvas.draw([], frame("frame", "of two")))
    shown = screen.lines()
    assert shown[0] == "first"
    assert shown[-2:] == ["frame", "of two"]
    canvas.close(["third"])
    assert screen.lines() == [*shown[:-2], "third"]


def test_more_lines_than_the_screen_has_leave_the_frame_at_its_end(screen: Screen) -> None:
    canvas = Canvas(screen.stream)
    for number in range(40):
        canvas.write(canvas.draw([f"line {number}"], frame("frame", "of two")))
    assert screen.lines()[-4:] == ["line 38", "line 39", "frame", "of two"]


def test_a_terminal_that_was_made_wider_or_lower_gets_its_next_frame(screen: Screen) -> None:
    canvas = Canvas(screen.stream)
    canvas.write(canvas.draw([], frame("wide " * 10, "second")))
    screen.resize(100, ROWS)
    canvas.write(canvas.draw([], frame("wider " * 15, "second")))
    assert screen.lines() == [("wider " * 15).rstrip(), "second"]


def test_a_terminal_that_was_made_narrower_has_broken_the_lines_of_the_last_frame(screen: Screen) -> None:
    canvas = Canvas(screen.stream)
    canvas.write(canvas.draw([], frame("x" * 50, "second")))
    screen.resize(20, ROWS)
    assert "\r\x1b[3A" in canvas.draw([], frame("fits", "second"))  # 50 columns take three rows of 20 now


@pytest.mark.anyio
async def test_a_line_that_was_told_just_before_the_end_is_shown(screen: Screen, tmp_path: Path) -> None:
    view = LiveView(PlainView(Run(), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "offline"), screen.stream)
    for record in story(None):
        view.tell(record)
    view.note("told at the last moment")
    async with anyio.create_task_group() as beside:
        await beside.start(view.show)
        beside.cancel_scope.cancel()
    assert "told at the last moment" in screen.lines()


def test_a_frame_is_laid_out_when_something_happened_a_second_has_passed_or_the_terminal_has_another_size(
    screen: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[int] = []

    def counted(*arguments: Any, **settings: Any) -> list[Text]:
        laid_out.append(settings["width"])
        return frame_lines(*arguments, **settings)

    monkeypatch.setattr("ksearch_async.views.live.frame_lines", counted)
    clock = iter([100.1, 100.4, 100.6, 101.2, 101.3, 101.4, 101.5])
    monkeypatch.setattr("ksearch_async.views.live._now", lambda: datetime.fromtimestamp(next(clock), UTC))
    view = LiveView(PlainView(Run(), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "offline"), screen.stream)
    first, second, *_ = story()
    view.tell(first)
    seen = []
    for happened in (None, None, second, None, None):
        if happened is not None:
            view.tell(happened)
        view.drawn()
        seen.append(len(laid_out))
    screen.resize(40, 12)
    view.drawn()
    assert seen == [1, 1, 2, 3, 3]
    assert laid_out[-1] == 39


@pytest.mark.anyio
async def test_a_run_is_shown_while_it_goes_on_and_its_summary_stays(
    screen: Screen, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = PlainView(Run(), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "offline")
    view = LiveView(plain, screen.stream)
    *records, last = story()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as beside:
            for record in records:
                view.tell(record)
            view.note("warning: something to keep")
            await beside.start(view.show)
            await anyio.to_thread.run_sync(screen.wait_for, "rounds")
            view.tell(last)
            beside.cancel_scope.cancel()
    shown = screen.lines()
    assert not any(line.startswith("rounds") for line in shown)
    assert "warning: something to keep" in shown
    assert shown[-1].strip() == "stopping: its rounds are used up"
    view.finish()
    assert "2.00x the reference [1.90, 2.10]" in capsys.readouterr().out


@pytest.mark.anyio
async def test_a_terminal_that_goes_away_ends_the_view_and_nothing_else(tmp_path: Path) -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        plain = PlainView(Run(), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "offline")
        view = LiveView(plain, stream)
        for record in story(None):
            view.tell(record)
        os.close(reader)
        with anyio.fail_after(10):
            await view.show()


def test_only_a_terminal_that_understands_movement_is_live(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert can_be_live(screen.stream)
    screen.resize(10, 3)
    assert not can_be_live(screen.stream)
    screen.resize(COLUMNS, ROWS)
    monkeypatch.setenv("TERM", "dumb")
    assert not can_be_live(screen.stream)


def test_a_terminal_in_the_c_locale_gets_ascii_of_the_same_width(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "├─ n1 ★ fuse the…  ▁▄█░"
    assert legible(text, screen.stream) == text
    monkeypatch.setenv("LC_ALL", "C")
    assert legible(text, screen.stream) == "|- n1 * fuse the~  _-#."


def test_colours_are_left_out_where_they_are_not_wanted(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[1;32m" in Canvas(screen.stream).draw([], frame("green"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert "32m" not in Canvas(screen.stream).draw([], frame("green"))


def test_ctrl_c_ends_a_real_search_and_leaves_the_terminal_as_it_was(screen: Screen, tmp_path: Path) -> None:
    screen.resize(80, 40)
    command = [sys.executable, "-m", "ksearch_async", "run", "gate.py", "--max-rounds", "200", "--branches", "1"]
    (tmp_path / "gate.py").write_text(PROBLEM)
    modes = termios.tcgetattr(screen.stream.fileno())
    with subprocess.Popen(command, cwd=tmp_path, stdout=screen.stream, stderr=screen.stream) as search:
        screen.wait_for("evaluating", timeout_s=60)
        search.send_signal(signal.SIGINT)
        screen.wait_for("go on", timeout_s=60)
        assert search.wait(60) == 130
    shown = screen.lines()
    assert "stopping when the evaluations in flight are done; again stops now" in shown
    assert any(line.startswith("go on      ksearch resume runs/gate-") for line in shown)
    assert not any(line.startswith("flight") for line in shown)
    assert termios.tcgetattr(screen.stream.fileno()) == modes
