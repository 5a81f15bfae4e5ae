"""What candidates print, as people and models are shown it."""

from __future__ import annotations

from evaluators.process.printed import folded, printable


def test_equal_lines_in_a_row_are_written_once_with_their_number() -> None:
    assert folded("rows 64\nrows 64\nrows 64\ndone\nrows 64") == "rows 64 (3 times)\ndone\nrows 64"
    assert folded("") == ""


def test_what_a_terminal_would_act_upon_is_replaced() -> None:
    assert printable("a\x1b[2Jb\n\tc") == "a\N{REPLACEMENT CHARACTER}[2Jb\n\tc"
