"""Who plans and who writes: what is set for both, for a role, and for one of several models that write."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.llm.base import Request
from ksearch_async.settings.models import (
    dialect_of,
    gates_of,
    lineup_of,
    model_words,
    open_model,
    writer_dialect,
    writer_names,
)
from ksearch_async.settings.resolve import resolve_config, trace_config
from ksearch_async.settings.run_config import RunConfig, load_config, planner_settings, save_config, writers
from messages.base import ConfigError, ModelError
from tests.actors.llm.endpoint import completion, endpoint

FILE = """
[model]
name = "both"
base_url = "http://127.0.0.1:1/v1"
requests_per_minute = 60

[model.planner]
name = "thinker"
reasoning_effort = "high"
structured = "on"
early_stop = false

[model.coder]
temperature = 0.5
edit_format = "whole"
choice = "bandit"

[[model.coder.members]]
name = "small"
weight = 3
tier = "small"

[[model.coder.members]]
name = "large"
base_url = "http://127.0.0.1:2/v1"
key_variable = "LARGE_KEY"
requests_per_minute = 10
seed = 7
edit_format = "search-replace"
"""


def of_file(tmp_path: Path, text: str = FILE) -> RunConfig:
    file = tmp_path / "ksearch.toml"
    file.write_text(text)
    return resolve_config("relu", config_file=file, environment={}, flags={})


def by_flags(**flags: object) -> RunConfig:
    return resolve_config(
        "relu", environment={}, flags={name.replace("_", "-"): value for name, value in flags.items()}
    )


def test_a_role_has_what_is_set_for_it_and_else_what_is_set_for_both(tmp_path: Path) -> None:
    model = of_file(tmp_path).model
    planner = planner_settings(model, {})
    assert (planner.name, planner.reasoning_effort, planner.base_url) == ("thinker", "high", "http://127.0.0.1:1/v1")
    small, large = writers(model, {})
    assert (small.settings.name, small.settings.temperature, small.weight, small.tier) == ("small", 0.5, 3.0, "small")
    assert (large.settings.base_url, large.settings.key_variable, large.tier) == (
        "http://127.0.0.1:2/v1",
        "LARGE_KEY",
        "",
    )
    assert small.settings.reasoning_effort is None
    assert (planner.structured, planner.early_stop, planner.seed) == ("on", False, None)
    assert (large.settings.structured, large.settings.early_stop, large.settings.seed) == ("auto", True, 7)
    assert (small.edit_format, large.edit_format) == ("whole", "search-replace")


def test_what_a_file_says_of_members_is_saved_with_the_run(tmp_path: Path) -> None:
    config = of_file(tmp_path)
    save_config(config, tmp_path / "config.json")
    assert load_config(tmp_path / "config.json") == config
    assert "LARGE_KEY" in (tmp_path / "config.json").read_text()


def test_several_models_may_be_listed_by_a_flag() -> None:
    found = writers(by_flags(model="both", base_url="http://h", coder_model="small=3, large").model, {})
    assert [(writer.settings.name, writer.weight) for writer in found] == [("small", 3.0), ("large", 1.0)]


@pytest.mark.parametrize("text", ["small=", "a,", "a=0", "a=-1", "a=x", "=3", "a,a", "a=inf"])
def test_a_list_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        writers(by_flags(base_url="http://h", coder_model=text).model, {})


def test_members_and_a_name_besides_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="named besides"):
        writers(of_file(tmp_path, FILE.replace("temperature = 0.5", 'name = "x"')).model, {})


def test_only_one_role_may_be_an_endpoints() -> None:
    model = by_flags(coder_model="m", coder_base_url="http://h").model
    assert dialect_of(planner_settings(model, {}), {}) == "offline"
    assert writer_dialect(model, {}) == "chat"
    assert "plans; m at http://h writes" in model_words(model, {})


def test_a_planner_has_no_form_of_edits(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key"):
        of_file(tmp_path, '[model.planner]\nedit_format = "whole"\n')


def test_the_line_up_tells_in_which_form_each_model_answers(tmp_path: Path) -> None:
    found = lineup_of(of_file(tmp_path), {"LARGE_KEY": "k"})
    assert [offer.edit_format for offer in found.coders] == ["whole", "search-replace"]
    assert found.coder("large").edit_format == "search-replace"
    assert lineup_of(by_flags(model="m", base_url="http://h"), {}).coder("").edit_format is None


def test_a_form_for_coders_of_other_processes_is_for_models_that_are_named(tmp_path: Path) -> None:
    alone = of_file(tmp_path, '[model.coder]\nedit_format = "whole"\n')
    with pytest.raises(ConfigError, match="the coders are other processes"):
        lineup_of(alone, {}, writes_here=False)
    assert lineup_of(alone, {}).coder("").edit_format == "whole"


def test_words_and_names_tell_of_all_models(tmp_path: Path) -> None:
    model, environment = of_file(tmp_path).model, {"LARGE_KEY": "k"}
    words = model_words(model, environment)
    assert words.startswith("thinker at http://127.0.0.1:1/v1 plans; small at")
    assert "by what each brings for its cost" in words
    assert writer_names(model, environment) == "small, large"
    assert "(75%)" in model_words(by_flags(base_url="http://h", model="m", coder_model="a=3,b").model, {})


def test_a_roles_own_key_goes_before_the_general_one_and_a_named_one_must_be_there(tmp_path: Path) -> None:
    model = by_flags(model="m").model
    environment = {"KSEARCH_API_KEY": "general", "KSEARCH_CODER_API_KEY": "own"}
    (writer,) = writers(model, environment)
    assert writer.settings.key_variable == "KSEARCH_CODER_API_KEY"
    assert planner_settings(model, environment).key_variable is None
    with pytest.raises(ConfigError, match="LARGE_KEY"):
        writer_dialect(of_file(tmp_path).model, {})


def test_roles_at_one_endpoint_share_a_gate_with_the_smallest_limits(tmp_path: Path) -> None:
    model, environment = of_file(tmp_path).model, {"LARGE_KEY": "k"}
    asked = [planner_settings(model, environment), *(writer.settings for writer in writers(model, environment))]
    gates = gates_of(asked, environment)
    assert sorted(address for address, _ in gates) == ["http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1"]


def test_a_dry_run_can_say_where_a_roles_setting_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "k.toml"
    file.write_text('[model.planner]\nname = "p"\n')
    traced = trace_config("relu", config_file=file, environment={"KSEARCH_CODER_MODEL": "c"}, flags={"model": "m"})
    assert traced.origins["model.planner.name"] == str(file)
    assert traced.origins["model.coder.name"] == "KSEARCH_CODER_MODEL"
    assert traced.origins["model.name"] == "--model"


@pytest.mark.anyio
async def test_each_question_goes_to_the_model_of_its_role_and_of_its_name() -> None:
    async with endpoint(lambda _: completion("ok")) as server:
        model = by_flags(model="thinker", base_url=server.url, coder_model="small,large").model
        async with open_model(model, {}, seed=0) as opened:
            for role, name in (("planner", ""), ("coder", "large"), ("coder", "small"), ("coder", "")):
                await opened.complete(
                    Request(request_id=f"{role}-{name}", role=role, system="s", parts=("p",), model=name)  # type: ignore[arg-type]
                )
            with pytest.raises(ModelError, match="this coder has small, large") as caught:
                await opened.complete(Request(request_id="x", role="coder", system="s", parts=("p",), model="huge"))
    assert caught.value.permanent
    assert [request["model"] for request in server.requests] == ["thinker", "large", "small", "small"]
