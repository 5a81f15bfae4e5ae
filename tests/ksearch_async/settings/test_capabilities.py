from __future__ import annotations

from pathlib import Path

import pytest

from actors.llm.features import Capabilities, Features, Sampling
from ksearch_async.settings.models import (
    Remembered,
    dialect_of,
    features_of,
    known_words,
    model_words,
    recall,
    remember,
    sampling_of,
)
from ksearch_async.settings.run_config import ModelSettings
from messages.base import ConfigError

URL = "http://127.0.0.1:1/v1"
SETTINGS = ModelSettings(name="small", base_url=URL)
FOUND = Remembered(
    capabilities=Capabilities(
        model="small",
        base_url=URL,
        dialects=("chat",),
        structured="yes",
        streams="yes",
        refused=("seed", "temperature"),
    ),
    probed_on="2026-11-20",
)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path), "KSEARCH_API_KEY": "sk-very-secret-key"}


def test_what_was_found_is_recalled_for_this_address_and_model_only(environment: dict[str, str]) -> None:
    path = remember(environment, FOUND)
    assert recall(environment, SETTINGS) == FOUND
    assert recall(environment, ModelSettings(name="small", base_url=f"{URL}/")) == FOUND
    assert recall(environment, ModelSettings(name="large", base_url=URL)) is None
    assert recall(environment, ModelSettings(name="small", base_url="http://127.0.0.1:2/v1")) is None
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert "secret" not in path.read_text()


def test_a_file_that_cannot_be_read_is_no_knowledge(environment: dict[str, str]) -> None:
    remember(environment, FOUND).write_text("{")
    assert recall(environment, SETTINGS) is None


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "ksearch").write_text("a file")
    with pytest.raises(ConfigError, match="cannot write"):
        remember({"XDG_CACHE_HOME": str(tmp_path)}, FOUND)


def test_structured_output_is_used_where_it_was_found_or_is_asked_for() -> None:
    assert not features_of(SETTINGS, None).structured
    assert features_of(SETTINGS, FOUND).structured
    assert not features_of(ModelSettings(structured="off"), FOUND).structured
    assert features_of(ModelSettings(structured="on"), None) == Features(structured=True)
    assert not features_of(ModelSettings(early_stop=False), FOUND).streams


def test_parameters_that_are_refused_are_not_sent_and_that_is_said() -> None:
    settings = ModelSettings(name="small", temperature=0.5, max_tokens=9, seed=3, reasoning_effort="low")
    assert sampling_of(settings, FOUND) == Sampling(max_tokens=9, reasoning_effort="low")
    assert sampling_of(settings, None) == Sampling(temperature=0.5, max_tokens=9, seed=3, reasoning_effort="low")
    said = known_words(settings, FOUND)
    assert said == (
        " (probed on 2026-11-20: structured output, temperature not sent: it refuses it, seed not sent: it refuses it)"
    )
    assert known_words(settings, None) == ""


def test_who_plans_and_writes_is_said_with_what_is_known(environment: dict[str, str]) -> None:
    remember(environment, FOUND)
    assert model_words(SETTINGS, environment) == f"small at {URL} (probed on 2026-11-20: structured output)"


def test_an_endpoint_of_the_responses_api_only_is_asked_in_it(environment: dict[str, str]) -> None:
    only = Capabilities(model="small", base_url=URL, dialects=("responses",))
    remember(environment, Remembered(capabilities=only, probed_on="2026-11-20"))
    assert dialect_of(SETTINGS, environment) == "responses"
    assert dialect_of(ModelSettings(kind="chat", name="small", base_url=URL), environment) == "chat"
