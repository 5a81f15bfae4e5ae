"""File < environment < flags; what cannot be used is refused where it stands."""

from __future__ import annotations

import errno
from pathlib import Path

import msgspec
import pytest

from ksearch_async.settings.effort import EFFORTS
from ksearch_async.settings.models import dialect_of, model_words
from ksearch_async.settings.options import SETTINGS
from ksearch_async.settings.resolve import resolve_config, trace_config
from ksearch_async.settings.run_config import (
    OTHER_VARIABLES,
    RunConfig,
    changed_keys,
    flatten,
    load_config,
    may_change,
    save_config,
)
from messages.base import ConfigError


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(text)
    return path


def resolved(path: Path | None = None, environment: dict[str, str] | None = None, **flags: object) -> RunConfig:
    named = {name.replace("_", "-"): value for name, value in flags.items()}
    return resolve_config("relu", config_file=path, environment=environment or {}, flags=named)


def refused(path: Path | None = None, environment: dict[str, str] | None = None, **flags: object) -> str:
    with pytest.raises(ConfigError) as caught:
        resolved(path, environment, **flags)
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, "[search]\nbranches = 2\nstagnation_window = 2\nmax_tries = 2\n")
    environment = {"KSEARCH_BRANCHES": "3", "KSEARCH_WINDOW": "3"}
    search = resolved(file, environment, branches=4).search
    assert (search.branches, search.stagnation_window, search.max_tries, search.refusals) == (4, 3, 2, 2)


def test_the_standard_effort_is_the_defaults() -> None:
    defaults = dict(flatten(msgspec.to_builtins(RunConfig(task="relu"))))
    assert {path: defaults[path] for path in EFFORTS["standard"]} == EFFORTS["standard"]
    assert {frozenset(numbers) for numbers in EFFORTS.values()} == {frozenset(EFFORTS["standard"])}
    assert resolved(effort="standard") == RunConfig(task="relu")


@pytest.mark.parametrize("where", ["flag", "variable", "file"])
def test_an_effort_sets_the_numbers_that_nothing_else_sets(where: str, tmp_path: Path) -> None:
    text = "[search.budget]\nmax_rounds = 7\n"
    file = written(tmp_path, f'effort = "full"\n{text}' if where == "file" else text)
    environment = {"KSEARCH_WINDOW": "2"} | ({"KSEARCH_EFFORT": "full"} if where == "variable" else {})
    flags = {"effort": "full"} if where == "flag" else {}
    config = resolved(file, environment, max_difficulty=3, **flags)
    search = config.search
    assert (config.effort, search.branches) == ("full", EFFORTS["full"]["search.branches"])
    assert (search.budget.max_rounds, search.stagnation_window, search.max_difficulty) == (7, 2, 3)


def test_each_value_is_traced_to_where_it_comes_from(tmp_path: Path) -> None:
    file = written(tmp_path, "[search]\nmax_tries = 5\n")
    traced = trace_config(
        "relu",
        config_file=file,
        environment={"KSEARCH_EFFORT": "quick", "KSEARCH_SEED": "3"},
        flags={"branches": 2, "model": None},
    )
    origins = {path: origin for path, origin in traced.origins.items() if origin != "default"}
    assert origins == {
        "task": "argument",
        "effort": "KSEARCH_EFFORT",
        "search.branches": "--branches",
        "search.stagnation_window": "effort quick",
        "search.repair_window": "effort quick",
        "search.budget.max_rounds": "effort quick",
        "search.max_tries": str(file),
        "seed": "KSEARCH_SEED",
    }
    assert set(traced.origins) == set(dict(flatten(msgspec.to_builtins(traced.config))))


def test_a_resumed_run_keeps_its_numbers_and_another_effort_is_a_change() -> None:
    saved = resolved(effort="quick", max_rounds=5)
    kept = resolve_config(environment={}, flags={"max-rounds": 9}, saved=saved)
    assert changed_keys(saved, kept) == ["search.budget.max_rounds"]
    other = resolve_config(environment={}, flags={"effort": "full"}, saved=saved)
    assert [key for key in changed_keys(saved, other) if not may_change(key)] == ["effort"]


def test_the_variable_of_k_searchs_scripts_is_not_taken_for_ours() -> None:
    assert resolved(environment={"KSEARCH_ROOT": "/k-search"}) == RunConfig(task="relu")


def test_every_setting_has_a_flag_and_a_variable_that_reach_it() -> None:
    values: dict[str, tuple[str, object]] = {
        "language": ("cpp", "cpp"), "runs-dir": ("x", "x"), "sync": ("never", "never"), "model": ("m", "m"),
        "base-url": ("http://h", "http://h"), "model-kind": ("chat", "chat"), "max-seconds": ("2.5", 2.5),
        "target-speedup": ("2.5", 2.5), "timeout": ("2.5", 2.5), "world-model": ("off", "off"),
        "score-with": ("e.py", "e.py"), "eval-timeout": ("2.5", 2.5), "eval-memory": ("2.5", 2.5),
        "continue-from-solution": ("k.cpp", "k.cpp"), "continue-from-world-model": ("auto", "auto"),
        "temperature": ("0.5", 0.5), "mistakes": ("0.5", 0.5), "reasoning-effort": ("low", "low"),
        "edit-format": ("whole", "whole"), "structured": ("on", "on"), "early-stop": ("false", False),
        "replay": ("r", "r"), "replay-misses": ("ask", "ask"), "planner-model": ("m", "m"), "coder-model": ("m", "m"),
        "planner-base-url": ("http://h", "http://h"), "coder-base-url": ("http://h", "http://h"),
        "coder-choice": ("bandit", "bandit"), "prices": ("p.toml", "p.toml"),
        "effort": ("standard", "standard"), "with": ("coder", "coder"), "nats": ("embedded", "embedded"),
        "tier": ("x", "x"), "device": ("cuda:0", "cuda:0"), "baseline": ("torch.compile", "torch.compile"),
        "selection": ("paper", "paper"), "arch": ("sm90", "sm90"), "metrics-host": ("h", "h"),
        "confirm": ("false", False), "tolerance": ("flashinfer", "flashinfer"), "allow-trivial": ("true", True),
        "isolation": ("strict", "strict"), "library-calls": ("allow", "allow"), "measure": ("eager", "eager"),
        "allow-library": ("aten::mm", "aten::mm"), "window": ("4", 4), "track": ("wandb,mlflow", "wandb,mlflow"),
        "track-project": ("p", "p"), "notify": ("http://h", "http://h"), "notify-on": ("best", "best"),
    }  # fmt: skip
    for setting in SETTINGS:
        text, value = values.get(setting.flag, ("3", 3))
        by_flag = resolve_config("relu", environment={}, flags={setting.flag: value})
        by_variable = resolve_config("relu", environment={setting.variable: text}, flags={})
        # A webhook's address may be a secret: from the environment it is read when it is used, and never saved.
        expected = RunConfig(task="relu") if setting.variable in OTHER_VARIABLES else by_flag
        assert by_variable == expected
        assert setting.flag in ("language", "effort") or changed_keys(RunConfig(task="relu"), by_flag) == [setting.path]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[search]\nbranchs = 2", "unknown key 'search.branchs' in"),
        ("[search]\nbranchs = 2", "did you mean 'branches'?"),
        ("[serch.budget]\nmax_rounds = 2", "did you mean 'search'?"),
        ('[tracking]\nto = "wandb,mlflo"', "no tracker 'mlflo'"),
        ('[notify]\nurl = "https://me:secret@h/"', "must not hold a password"),
        ('[notify]\nurl = "ftp://h"', "begins with http:// or https://"),
        ('[notify]\non = "bests"', "did you mean 'best'?"),
        ("[serch]", "did you mean 'search'?"),
        ("[search]\nbranches = 'two'", "'search.branches' in"),
        ("[search]\nbranches = 'two'", "expected int, not 'two'"),
        ("[search]\nbranches = 0", "expected int >= 1, not 0"),
        ("search = 3", "'search' in"),
        ("task = []", "expected str, not []"),
        ("[model]\nkind = 'gpt'", "invalid enum value 'gpt'"),
        ("[model\n", "is not TOML"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_key(tmp_path: Path, text: str, said: str) -> None:
    message = refused(written(tmp_path, text))
    assert said in message
    assert "run.toml" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("branches = 3", "it is search.branches;"),
        ("max-rounds = 3", "it is search.budget.max_rounds;"),
        ("[search]\nmax_rounds = 3", "it is search.budget.max_rounds;"),
        ("max_seconds = 3", "it is search.budget.wall_clock_s;"),
        ("timeout_s = 3", "it is model.timeout_s or model.planner.timeout_s or model.coder.timeout_s or program."),
        ("[budget]\nmax_rounds = 3", "it is search.budget;"),
        ("[search]\nbranchs = 3", "did you mean 'branches'?"),
    ],
)
def test_a_key_that_stands_in_another_table_or_is_called_as_its_flag_is_told_its_place(
    tmp_path: Path, text: str, said: str
) -> None:
    message = refused(written(tmp_path, text))
    assert said in message
    assert message.endswith("; ksearch run TASK --dry-run shows all keys")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot read configuration file" in refused(tmp_path / "none.toml")


def test_an_empty_table_changes_nothing(tmp_path: Path) -> None:
    assert resolved(written(tmp_path, "[search]\n[model]\n")) == RunConfig(task="relu")


def test_a_misspelt_variable_is_refused_and_others_programs_are_not_ours() -> None:
    assert "did you mean 'KSEARCH_BRANCHES'?" in refused(environment={"KSEARCH_BRANCHS": "2"})
    assert resolved(environment={"PATH": "/bin", "BRANCHES": "9", "KSEARCH_CXX": "clang++"}) == RunConfig(task="relu")


def test_a_wrong_value_names_the_flag_or_the_variable() -> None:
    assert refused(branches=0).startswith("--branches: expected int >= 1")
    assert refused(environment={"KSEARCH_MAX_ROUNDS": "many"}).startswith("KSEARCH_MAX_ROUNDS: ")


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_limit_that_no_journal_can_hold_is_refused(tmp_path: Path, value: float) -> None:
    assert refused(max_seconds=value).startswith("--max-seconds: expected ")
    assert "search.budget.wall_clock_s" in refused(written(tmp_path, f"[search.budget]\nwall_clock_s = {value}\n"))


def test_a_whole_number_that_no_message_can_hold_is_refused() -> None:
    assert refused(seed=2**63) == f"--seed: expected an int of at most 64 bits, not {2**63}"
    assert refused(max_calls=10**30).startswith("--max-calls: ")
    assert resolved(seed=2**63 - 1).seed == 2**63 - 1


def test_a_run_needs_a_task() -> None:
    with pytest.raises(ConfigError, match="no task given"):
        resolve_config(environment={}, flags={})


def test_a_saved_configuration_is_read_back_as_it_was(tmp_path: Path) -> None:
    config = resolved(branches=7, model="m", base_url="http://h")
    save_config(config, tmp_path / "config.json")
    assert load_config(tmp_path / "config.json") == config


def test_a_configuration_that_cannot_be_written_leaves_the_old_one_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config.json"
    save_config(resolved(branches=7), path)

    def fill_the_disk(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fill_the_disk)
    with pytest.raises(ConfigError, match="No space left"):
        save_config(resolved(branches=9), path)
    assert load_config(path) == resolved(branches=7)


def test_no_key_is_ever_part_of_a_configuration(tmp_path: Path) -> None:
    environment = {"KSEARCH_API_KEY": "sk-first-secret", "OPENAI_API_KEY": "sk-second-secret"}
    save_config(resolved(environment=environment, model="m"), tmp_path / "config.json")
    assert "secret" not in (tmp_path / "config.json").read_text()


def test_only_rounds_model_workers_and_places_may_change_when_a_run_is_resumed() -> None:
    before = resolved()
    after = resolved(max_rounds=99, model="m", builders=5, sync="never", branches=9, seed=9)
    assert [key for key in changed_keys(before, after) if not may_change(key)] == ["search.branches", "seed"]


def test_a_key_alone_asks_for_no_endpoint() -> None:
    environment = {"OPENAI_API_KEY": "sk-secret"}
    assert dialect_of(resolved().model, environment) == "offline"
    assert "not a language model" in model_words(resolved().model, environment)


def test_a_named_model_with_a_key_or_an_address_is_an_endpoint() -> None:
    assert dialect_of(resolved(model="m").model, {"KSEARCH_API_KEY": "sk-secret"}) == "chat"
    assert dialect_of(resolved(model="m", base_url="http://h").model, {}) == "chat"
    assert dialect_of(resolved(model="m", model_kind="offline").model, {}) == "offline"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"model": "m"}, "needs a key"),
        ({"base-url": "http://h"}, "no model is named"),
        ({"model-kind": "chat"}, "named"),
        ({"model": "m", "base-url": "http://h/v1", "mistakes": 0.1}, "mistakes are for the built-in rules"),
        ({"model": "m", "base-url": "localhost:8000"}, "'localhost:8000' is no address"),
        ({"model": "m", "base-url": "http://["}, "cannot be read"),
        ({"model": "m", "base-url": "http://me:sk-secret@h/v1"}, "holds a user name or a password"),
    ],
)
def test_an_endpoint_that_lacks_something_is_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        dialect_of(resolve_config("relu", environment={}, flags=flags).model, {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["KSEARCH_KERNELBENCH", "KSEARCH_EXPORT_CACHE"])
def test_a_variable_of_ours_that_is_no_setting_is_not_refused(name: str) -> None:
    assert resolve_config("relu", environment={name: "somewhere"}, flags={}).task == "relu"
