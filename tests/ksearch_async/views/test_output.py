"""What models and candidates write, on a terminal and in a file."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import msgspec
import pytest
from rich.text import Text

from ksearch_async.cli import main
from ksearch_async.views.live import Canvas
from ksearch_async.views.terminal import coloured, harmless, legible, put, put_raw
from messages.tasks import SourceFile
from tests.ksearch_async.stories import FAST, KERNEL, RUN_ID, attempt, on_disk, records_of, story

HOSTILE = "tile\x1b]0;owned\x07 by\x1b[2J 4\x9b8m\u202e\r"
SEEN = "tile�]0;owned� by�[2J 4�8m��"


def test_what_a_terminal_would_act_upon_is_replaced_colours_and_all() -> None:
    assert harmless(HOSTILE) == SEEN
    assert harmless("… └─ ★\n") == "… └─ ★\n"
    for acts in ("\x1b[H\x1b[J", "\x1b[30;40mhidden", "\x1b[30m\x1b[40m", "\x1b[8m", "\x1b[0m"):
        assert "\x1b" not in harmless(acts)


def test_only_what_we_colour_is_in_colour() -> None:
    assert coloured(HOSTILE, "2") == f"\x1b[2m{SEEN}\x1b[m"
    assert coloured("\x1b[30m\x1b[40mhidden", "31") == "\x1b[31m�[30m�[40mhidden\x1b[m"


def test_a_kernel_cannot_hide_a_line_of_a_diff_nor_clear_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hiding = "\x1b[H\x1b[J\x1b[30m\x1b[40m// steal\x1b[0m\n"
    candidate = msgspec.structs.replace(KERNEL, files=(SourceFile(path="kernel.cpp", text=hiding),))
    on_disk(tmp_path, records_of([*(record.body for record in story(None)[:3]), *attempt(3, candidate, FAST)]))
    for name, value in (("LC_ALL", "C.UTF-8"), ("TERM", "xterm"), ("NO_COLOR", "")):
        monkeypatch.setenv(name, value)
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        assert main(["diff", RUN_ID, "--runs-dir", str(tmp_path)]) == 0
        printed = os.read(reader, 10_000).decode()
    os.close(reader)
    assert "\x1b[32m+�[H�[J�[30m�[40m// steal�[0m\x1b[m" in printed


def test_in_ascii_what_takes_two_columns_still_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        assert legible("├ 列 e\u0301 ┄ │", terminal) == "| ?? e . |"
    os.close(reader)


def test_lines_for_people_are_cleaned_in_a_pipe_too_and_raw_ones_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        for write in (put, put_raw):
            write(HOSTILE)
            assert os.read(reader, 1000).decode().rstrip() == SEEN
    os.close(reader)
    ahead, behind = os.pipe()
    with os.fdopen(behind, "w", encoding="utf-8", newline="") as file:
        monkeypatch.setattr("sys.stdout", file)
        put(HOSTILE + "\nforged")
        put_raw(HOSTILE)
    with os.fdopen(ahead, encoding="utf-8", newline="") as file:
        assert file.read() == f"{SEEN} forged\n{HOSTILE}\n"


def test_a_frame_holds_nothing_hostile_and_lines_above_it_neither() -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        drawn = Canvas(terminal).draw([HOSTILE], [Text(HOSTILE, style="red")])
    os.close(reader)
    assert SEEN in drawn
    assert drawn.count("]0;owned") == 2
    assert not any(sign in drawn for sign in ("\x1b]", "\x1b[2J", "\x9b", "\u202e"))
