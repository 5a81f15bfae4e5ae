"""How texts are put on a line: by the columns that they take, with nothing in them that a terminal acts upon."""

from __future__ import annotations

import pytest

from ksearch_async.views.text import columns_of, dollars, fitted, padded, plain, shortened, tokens_words, wrapped

WIDE = "行列の積 tile"


def test_east_asian_signs_take_two_columns_and_accents_none() -> None:
    assert columns_of(WIDE) == 13
    assert columns_of("e\u0301te\u0301") == 3
    assert columns_of("a\x1bb\u202e") == 4  # each is shown as a sign that says so


def test_a_text_is_cut_by_the_columns_that_it_takes_and_never_through_a_sign() -> None:
    assert shortened(WIDE, 13) == WIDE
    assert shortened(WIDE, 7) == "行列の…"
    assert shortened(WIDE, 6) == "行列…"
    assert fitted(f"  {WIDE}", 8) == "  行列…"
    for width in range(1, 14):
        assert columns_of(shortened(WIDE, width)) <= width


def test_blanks_fill_a_column_whatever_the_signs() -> None:
    assert padded("列", 4) == "列  "
    assert padded("列", 4, right=True) == "  列"
    assert padded("longer", 3) == "longer"


def test_what_is_put_on_a_line_is_measured_as_it_is_shown() -> None:
    assert plain("\x1b[2Ja\tb\n\n c\u202e\x00") == "�[2Ja b c��"
    assert plain("\u2764\ufe0f heart") == "\u2764 heart"  # terminals disagree on how wide the selector makes it
    assert plain("  plain  ascii ") == "plain ascii"


def test_of_a_text_of_a_megabyte_only_the_beginning_is_looked_at() -> None:
    assert len(plain("x" * 1_000_000)) < 5_000
    assert shortened("列" * 1_000_000, 5) == "列列…"


@pytest.mark.parametrize(
    ("count", "said"), [(940, "940 tokens"), (135_817, "136k tokens"), (4_210_000, "4.21M tokens")]
)
def test_tokens_are_said_with_three_digits(count: int, said: str) -> None:
    assert tokens_words(count) == said


def test_a_text_is_broken_between_words_below_the_end_of_its_lead() -> None:
    assert wrapped("one two\n three  four", 12, lead="node ") == ["node one two", "     three", "     four"]
    assert wrapped("", 12, lead="node ") == ["node "]


def test_what_is_too_wide_for_a_line_is_broken_by_columns() -> None:
    assert wrapped("a 行列の積を bc", 8, lead="- ") == ["- a", "  行列の", "  積を", "  bc"]
    assert wrapped("x" * 10, 4) == ["xxxx", "xxxx", "xx"]


def test_a_text_of_more_lines_than_there_may_be_says_that_it_goes_on() -> None:
    assert wrapped("one two three four", 7, most=2) == ["one two", "three…"]
    assert wrapped("x" * 1_000_000, 10, lead="  ", most=2) == ["  xxxxxxxx", "  xxxxxxx…"]
    assert wrapped("one two", 7, most=1) == ["one two"]


@pytest.mark.parametrize(("amount", "said"), [(0.0, "$0.00"), (0.0031, "$0.0031"), (1234.5, "$1,234.50")])
def test_small_amounts_of_money_are_not_said_to_be_none(amount: float, said: str) -> None:
    assert dollars(amount) == said
