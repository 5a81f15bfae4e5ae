"""Numbers as blocks: a line of them, or a few lines."""

from __future__ import annotations

from ksearch_async.views.text import chart_rows, sparkline


def test_a_sparkline_keeps_the_last_value_of_each_stretch_and_scales_to_the_largest() -> None:
    assert sparkline([0.0, 1.0, 2.0], 8) == " ▄█"
    assert sparkline([float(value) for value in range(1, 101)], 4) == "▂▄▆█"
    assert sparkline([], 4) == ""


def test_a_chart_of_several_lines_is_stretched_to_its_width_and_marks_a_value_where_nothing_is_drawn() -> None:
    assert chart_rows([0.0, 1.0, 4.0], 6, 4, mark=1.0) == ["    ██", "    ██", "┄┄┄┄██", "  ████"]
    assert chart_rows([0.5, 0.5], 2, 2, mark=1.0) == ["██", "██"]
    assert chart_rows([], 4, 2) == ["", ""]


def test_what_is_not_nothing_is_seen_however_small_it_is() -> None:
    assert chart_rows([0.0, 0.001, 8.0], 3, 2) == ["  █", " ▁█"]
