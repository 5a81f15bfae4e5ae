"""What `ksearch planner` is told, and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from ksearch_async.cli import main
from ksearch_async.cli.node import OperationFlags
from ksearch_async.cli.planner import PlannerFlags, planner_order

ADDRESS = ["--nats", "nats://127.0.0.1:1"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("KSEARCH_NATS", "KSEARCH_API_KEY", "OPENAI_API_KEY", "LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("tokens", "complaint"),
    [
        ([], "error: no NATS server is named"),
        ([*ADDRESS, "--lease", "1"], "error: --lease: expected 2 to 3600 seconds, not 1"),
        ([*ADDRESS, "--model", "m"], "error: model 'm' needs a key or an address"),
        (
            [*ADDRESS, "--model", "m", "--base-url", "http://h/v1", "--latency", "1"],
            "error: --latency is for the built-in rules",
        ),
        ([*ADDRESS, "--runs-dir", "/proc/none"], "error: cannot write to '/proc/none'"),
        ([*ADDRESS, "--exit-when-idle", "0"], "error: --exit-when-idle: expected seconds above 0"),
        ([*ADDRESS, "..."], "error: '...' is no name for a run"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_line(
    tokens: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["planner", *tokens]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(complaint)
    assert "Traceback" not in said.err


def test_a_planner_says_which_model_it_has_and_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSEARCH_API_KEY", "hush-hush")
    work = PlannerFlags(nats="nats://127.0.0.1:1", model="gpt-x", node_name="Night Shift")
    presence = planner_order((), work, OperationFlags()).presence
    assert (presence.role, presence.model, presence.slots) == ("planner", "gpt-x", 1)
    assert presence.name.startswith("night-shift-")
    assert "hush" not in repr(presence)
