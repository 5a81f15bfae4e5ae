"""Keys that endpoints repeat: left out of errors and answers, unless they are words that stand in any kernel."""

from __future__ import annotations

import pytest

from actors.llm.base import masked, masked_answer

KEY = "sk-0123456789abcdef"


def test_a_key_is_left_out() -> None:
    assert masked(f"bad key {KEY}.", KEY) == "bad key ***."
    assert masked_answer(f"my key is {KEY}", KEY) == "my key is ***"


@pytest.mark.parametrize("key", ["", "x", "key", "EMPTY"])
def test_what_is_no_key_changes_nothing(key: str) -> None:
    text = "constexpr int key = EMPTY;"
    assert masked(text, key) == masked_answer(text, key) == text


def test_a_word_of_programs_stays_in_answers() -> None:
    assert masked_answer("the kernel", "kernel") == "the kernel"
    assert masked("HTTP 401: no kernel", "kernel") == "HTTP 401: no ***"
