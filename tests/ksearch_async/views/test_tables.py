"""Tables fit the terminal: what matters least gives way first."""

from __future__ import annotations

import pytest

from ksearch_async.views.text import Column, columns_of, table_lines

COLUMNS = (Column("name"), Column("note", rank=2), Column("count", number=True, rank=1))
ROWS = [["first-of-them", "short", "7"], ["b", "a longer note", "1,000"]]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (None, "NAME           NOTE           COUNT"),
        (35, "NAME           NOTE           COUNT"),
        (34, "NAME           COUNT"),
        (19, "NAME"),
        (10, "NAME"),
    ],
)
def test_columns_are_left_out_by_rank_until_the_rest_fits(width: int | None, titles: str) -> None:
    lines = list(table_lines(COLUMNS, ROWS, width=width))
    assert lines[0] == titles
    assert width is None or all(len(line) <= width for line in lines)


def test_numbers_are_aligned_right_and_long_cells_shortened_last() -> None:
    assert list(table_lines(COLUMNS, ROWS))[1:] == [
        "first-of-them  short              7",
        "b              a longer note  1,000",
    ]
    assert list(table_lines(COLUMNS, ROWS, width=10)) == ["NAME", "first-of-…", "b"]


def test_what_may_be_cut_is_cut_before_another_column_is_left_out() -> None:
    columns = [Column("id"), Column("part", number=True, rank=1), Column("title", least=8)]
    row = ["n1", "+0.400", "a title of thirty characters.."]
    assert list(table_lines(columns, [row], width=30))[1] == "n1  +0.400  a title of thirty…"
    assert list(table_lines(columns, [row], width=20))[1] == "n1  +0.400  a title…"
    assert list(table_lines(columns, [row], width=18))[1] == "n1  a title of th…"


def test_columns_stay_under_each_other_whatever_stands_in_them() -> None:
    rows = [["n1", "行列の積 \x1b[31mtile", "7"], ["n2", "e\u0301te\u0301\u202e", "1,000"]]
    lines = list(table_lines(COLUMNS, rows))
    assert lines[1:] == ["n1    行列の積 �[31mtile      7", "n2    e\u0301te\u0301�                1,000"]
    assert {columns_of(line) for line in lines} == {columns_of(lines[0])}
