"""What models and candidates write, on a terminal and in a file."""

from __future__ import annotations

import os
import pty

import pytest
from rich.text import Text

from ksearch_async.cli.live import Canvas
from ksearch_async.cli.output import harmless, put

HOSTILE = "tile\x1b]0;owned\x07 by\x1b[2J 4\x9b8m\u202e\r"
SEEN = "tile�]0;owned� by�[2J 4�8m��"


def test_what_a_terminal_would_act_upon_is_replaced_and_our_own_colours_stay() -> None:
    assert harmless(HOSTILE) == SEEN
    assert harmless(f"\x1b[2m{HOSTILE}\x1b[0m\n") == f"\x1b[2m{SEEN}\x1b[0m\n"
    assert harmless("\x1b[H\x1b[Jtree") == "\x1b[H\x1b[Jtree"
    assert harmless("… └─ ★") == "… └─ ★"
    assert "\x1b" not in harmless("a\x1b[H\x1b[J\x1b[8mhidden")


def test_a_line_of_results_is_made_harmless_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        put(HOSTILE)
        assert os.read(reader, 1000).decode().rstrip() == SEEN
    os.close(reader)
    ahead, behind = os.pipe()
    with os.fdopen(behind, "w", encoding="utf-8", newline="") as file:
        monkeypatch.setattr("sys.stdout", file)
        put(HOSTILE)
    with os.fdopen(ahead, encoding="utf-8", newline="") as file:
        assert file.read() == HOSTILE + "\n"


def test_a_frame_holds_nothing_hostile_and_lines_above_it_neither() -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        drawn = Canvas(terminal).draw([HOSTILE], [Text(HOSTILE, style="red")])
    os.close(reader)
    assert SEEN in drawn
    assert drawn.count("]0;owned") == 2
    assert not any(sign in drawn for sign in ("\x1b]", "\x1b[2J", "\x9b", "\u202e"))
