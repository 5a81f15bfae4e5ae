"""What is quoted comes back to the letter, and is not said twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from messages.models import Original, Quote, common_length, continuing, quoting, whole

CODE = Original(source="c1", path="k.cpp", text="\n" + "float x = 1;\n" * 40)
TASK = Original(source="task", text="Make this fast. " * 30)


def of(*originals: Original) -> dict[tuple[str, str], str]:
    return {(each.source, each.path): each.text for each in originals}


def restored(text: str, quotes: tuple[Quote, ...], *originals: Original) -> str:
    texts = of(*originals)
    return whole(text, quotes, lambda quote: texts.get((quote.source, quote.path)))


def test_a_passage_is_said_once_wherever_it_comes_again() -> None:
    text = f"{TASK.text}\n\nBase:\n```cpp\n{CODE.text.strip()}\n```\nand again\n{CODE.text}end"
    left, quotes = quoting(text, [CODE, TASK])
    assert left == "\n\nBase:\n```cpp\n\n```\nand again\n\n\nend"
    assert [(quote.source, quote.path) for quote in quotes] == [("task", ""), ("c1", "k.cpp"), ("c1", "k.cpp")]
    assert restored(left, quotes, CODE, TASK) == text


def test_what_is_short_is_not_worth_a_quote() -> None:
    assert quoting("int x;", [Original(source="c", text="int x;")]) == ("int x;", ())
    assert continuing("abc", Original(source="p", text="abd")) == ("abc", ())


def test_a_text_that_goes_on_is_told_from_where_it_differs() -> None:
    before = Original(source="p1", text=TASK.text + "one")
    left, quotes = continuing(TASK.text + "two", before)
    assert (left, quotes) == ("two", (Quote(at=0, source="p1", chars=len(TASK.text)),))
    assert restored(left, quotes, before) == TASK.text + "two"


def test_what_is_not_known_is_said() -> None:
    assert (
        whole("ab", (Quote(at=1, source="gone"),), lambda _: None) == "a[a passage of 'gone', which this run has not]b"
    )


def test_a_small_event_cannot_stand_for_a_text_that_fills_the_memory() -> None:
    assert len(whole("", (Quote(at=0, source="c1"),) * 10_000, lambda _: "x" * 1000)) < 100_000
    many = f"{CODE.text}|" * 100
    left, quotes = quoting(many, [CODE])
    assert restored(left, quotes, CODE) == many


PARTS = st.lists(st.sampled_from([CODE.text, CODE.text.strip("\n"), TASK.text, "\n", "x", "float x = 1;\n", "`"]))


@given(PARTS.map("".join))
def test_every_text_comes_back(text: str) -> None:
    left, quotes = quoting(text, [TASK, CODE])
    assert restored(left, quotes, CODE, TASK) == text


@given(PARTS.map("".join), PARTS.map("".join))
def test_every_text_comes_back_that_goes_on(text: str, before: str) -> None:
    original = Original(source="p", text=before)
    left, quotes = continuing(text, original)
    assert restored(left, quotes, original) == text


@given(st.text("ab"), st.text("ab"))
def test_a_common_beginning_is_as_long_as_it_can_be(first: str, second: str) -> None:
    length = common_length(first, second)
    assert first[:length] == second[:length]
    assert first[length : length + 1] != second[length : length + 1] or length in (len(first), len(second))
