"""Where an endpoint's key is read from, and in what shape."""

from __future__ import annotations

import pytest

from ksearch_async.settings.models import api_key
from messages.base import ConfigError


@pytest.mark.parametrize("given", ["sk-secret-123456\r\n", " sk-secret-123456\n", "sk-secret-123456"])
def test_a_key_that_was_read_from_a_file_comes_without_its_line_end(given: str) -> None:
    assert api_key({"KSEARCH_API_KEY": given}) == "sk-secret-123456"
    assert api_key({"OWN": given}, "OWN") == "sk-secret-123456"


def test_a_variable_that_holds_nothing_is_not_set() -> None:
    assert api_key({"KSEARCH_API_KEY": "\n", "OPENAI_API_KEY": "sk-second"}) == "sk-second"
    with pytest.raises(ConfigError, match="OWN"):
        api_key({"OWN": " "}, "OWN")


@pytest.mark.parametrize(("key", "place"), [("…", 1), ("sk-secret\r123456", 10), ("sk-sécret", 5)])
def test_a_key_that_no_header_may_hold_is_refused_without_being_shown(key: str, place: int) -> None:
    with pytest.raises(ConfigError, match=rf"OPENAI_API_KEY does \(character {place}\)") as caught:
        api_key({"OPENAI_API_KEY": key})
    assert "secret" not in f"{caught.value} {caught.value.__notes__}"
