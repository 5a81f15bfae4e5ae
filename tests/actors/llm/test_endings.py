from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.llm.answer_text import FenceEnding, JsonEnding
from actors.llm.base import Ending


def whole_at(ending: Ending, text: str, size: int) -> int | None:
    """Return after how many characters, read in pieces of a size, the text is whole and stays so; None: it never is."""
    found: int | None = None
    for start in range(0, len(text), size):
        if not ending.take(text[start : start + size]):
            found = None
        elif found is None:
            found = min(start + size, len(text))
    return found


@pytest.mark.parametrize(
    ("before", "rest"),
    [
        ('{"edits": []}', " And so on."),
        ('Well "so: ```json\n{"a": "}", "b": {"c": "\\"}"}}', "\n```\nI hope this helps."),
        ('{"edits": [{"title": "it\'s \\u007b"}]}', "}"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_object_ends_with_its_last_brace(before: str, rest: str, size: int) -> None:
    at = whole_at(JsonEnding(lambda _: True), before + rest, size)
    assert at == min(-(-len(before) // size) * size, len(before + rest))


def test_an_object_that_cannot_be_used_is_not_the_end() -> None:
    ending = JsonEnding(lambda text: "edits" in text)
    assert whole_at(ending, '{"thought": {}} {"edits": []} more', 1) == len('{"thought": {}} {"edits": []}')


def test_an_object_that_begins_later_is_waited_for() -> None:
    both = '{"edits": []} No: {"edits": [1]}'
    assert whole_at(JsonEnding(lambda _: True), both, 1) == len(both)


def test_a_brace_that_never_closes_is_no_end() -> None:
    assert whole_at(JsonEnding(lambda _: True), 'In C, { opens. {"edits": []}', 1) is None


CODE = "Fused.\n```cpp path=k.cpp\nint f() {\n// ``` is a fence\n}\n```\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_code_is_whole_when_its_block_is_closed(size: int) -> None:
    at = whole_at(FenceEnding(lambda _: True), CODE + "That was it.", size)
    assert at == min(-(-len(CODE) // size) * size, len(CODE) + 12)


def test_a_block_that_begins_later_is_waited_for() -> None:
    both = CODE + "And:\n```cpp path=k.h\n#pragma once\n```\n"
    assert whole_at(FenceEnding(lambda _: True), both, 1) == len(both)


def test_a_block_that_cannot_be_used_is_not_the_end() -> None:
    ending = FenceEnding(lambda text: "int f" in text)
    draft = "```sh\nls\n```\n"
    assert whole_at(ending, draft + CODE, 1) == len(draft + CODE)


def test_longer_fences_hold_shorter_ones() -> None:
    text = "````cpp\n```\nint f();\n```\n````\n"
    assert whole_at(FenceEnding(lambda _: True), text, 1) == len(text)


@pytest.mark.parametrize("make", [JsonEnding, FenceEnding])
@pytest.mark.parametrize("piece", ["{} ", "```\n```\n", "and so on ", "`"])
def test_an_answer_is_not_looked_at_again_and_again(make: type[JsonEnding | FenceEnding], piece: str) -> None:
    looks: list[int] = []

    def is_usable(text: str) -> bool:
        looks.append(len(text))
        return False

    ending = make(is_usable)
    for _ in range(20_000):
        assert not ending.take(piece)
    assert len(looks) <= 64


@given(st.text(alphabet='`{}"\\ab\n ', max_size=60), st.integers(min_value=1, max_value=9))
def test_the_end_does_not_depend_on_how_a_text_comes_in_pieces(text: str, size: int) -> None:
    for make in (lambda: JsonEnding(lambda _: True), lambda: FenceEnding(lambda _: True)):
        by_one, by_size = make(), make()
        for letter in text:
            last = by_one.take(letter)
        for start in range(0, len(text), size):
            last_of_size = by_size.take(text[start : start + size])
        assert not text or last == last_of_size
