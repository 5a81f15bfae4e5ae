"""`ksearch replay` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from actors.llm.offline import OfflineModel
from ksearch_async.cli import main
from ksearch_async.runs import replay
from tests.ksearch_async.runs.test_replaying import led, other_rules, session

ROUNDS = 8


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with one run."""
    anyio.run(led, session(tmp_path / "runs", rounds=ROUNDS), OfflineModel(seed=1))
    return tmp_path / "runs"


def test_a_run_that_comes_out_the_same_says_so(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "latest", "--runs-dir", str(runs)]) == 0
    told = capsys.readouterr().out
    assert f"{ROUNDS} rounds" in told
    assert "0 missed" in told
    assert "answers    " in told
    assert told.count("all the same") == 2


def test_a_changed_template_is_told_and_ends_with_1(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "plan_request", other_rules)
    assert main(["replay", "latest", "--misses", "1", "--runs-dir", str(runs)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert any("(planner): changed against" in line and line.endswith("rules") for line in told)
    assert any(line.strip().startswith("changed parts: rules (planner) ") for line in told)


def test_scripts_get_all_of_it(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "latest", "--json", "--runs-dir", str(runs)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["same"] is True
    assert told["replayed"]["rounds"] == ROUNDS
    assert told["replayed"]["hits"] == told["replayed"]["questions"] > ROUNDS
    assert told["replayed"]["misses"] == []


def test_a_run_that_is_not_there_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "gone", "--runs-dir", str(tmp_path)]) == 2
    assert "no run 'gone'" in capsys.readouterr().err
