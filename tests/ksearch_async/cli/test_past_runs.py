"""`ls`, `tree`, `diff` and `cost`: what is said of runs on disk, good ones and damaged ones."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ksearch_async.cli import main
from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.base import Usage
from messages.models import Price
from tests.ksearch_async.stories import FASTER_KERNEL, KERNEL, RUN_ID, on_disk, sequel, story


def damage(folder: RunFolder) -> None:
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join([*lines[:3], b"{}\n", *lines[4:]]))


def test_runs_are_listed_newest_first_with_state_rounds_and_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stories = {"ended": "rounds", "interrupted": "interrupted", "failed": "infrastructure", "stopped": None}
    for age, (name, stopped_by) in enumerate(stories.items()):
        folder = on_disk(tmp_path, story(stopped_by), f"relu-{name}")  # type: ignore[arg-type]
        os.utime(folder.journal, (1e9 - age, 1e9 - age))
    assert main(["ls", "--runs-dir", str(tmp_path)]) == 0
    titles, *rows = (line.split() for line in capsys.readouterr().out.splitlines())
    assert titles[:5] == ["RUN", "TASK", "STATE", "ROUNDS", "BEST"]
    assert [row[:5] for row in rows] == [[f"relu-{name}", "relu", name, "2/2", "2.00x"] for name in stories]


def test_a_damaged_journal_hides_no_other_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, story(), "relu-good")
    damage(on_disk(tmp_path, story(), "relu-bad"))
    (tmp_path / "relu-empty").mkdir()
    (tmp_path / "relu-empty" / "journal.jsonl").touch()
    assert main(["ls", "--runs-dir", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    states = {row["run"]: row["state"] for row in json.loads(printed.out)["runs"]}
    assert states == {"relu-good": "ended", "relu-bad": "damaged", "relu-empty": "stopped"}
    assert "line 4" in printed.err


def test_no_runs_are_a_notice_and_a_missing_folder_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ls", "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no runs in" in printed.err
    assert main(["ls", "--runs-dir", str(tmp_path / "nowhere")]) == 2
    assert "error: no folder" in capsys.readouterr().err


def test_the_tree_as_json_has_the_path_to_the_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, sequel())
    assert main(["tree", RUN_ID, "--runs-dir", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["best"], told["path_to_best"]) == ("n2", ["n1", "n2"])
    assert [node["node_id"] for node in told["nodes"]] == ["n0", "n1", "n2"]


def test_the_tree_alone_is_on_stdout_and_the_legend_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk(tmp_path, sequel())
    # Not from a server, though one is named: the run is here.
    monkeypatch.setenv("KSEARCH_NATS", "nats://127.0.0.1:9")
    assert main(["tree", RUN_ID, "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["n0", "└──", "└──"]
    assert "★ the best kernel" in printed.err


def test_a_diff_covers_all_files_and_names_both_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, sequel())
    assert main(["diff", RUN_ID, "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "--- kernel.cpp\t(round 2, n1, 2.00x)",
        "+++ kernel.cpp\t(round 3, n2, 2.50x)",
        "@@ -1 +1,2 @@",
        " // fast",
        "+#include <rows.h>",
        "--- /dev/null",
        "+++ rows.h\t(round 3, n2, 2.50x)",
        "@@ -0,0 +1 @@",
        "+// rows",
    ]


def test_a_diff_as_json_has_both_versions_and_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, sequel())
    assert main(["diff", RUN_ID, "2", "best", "--runs-dir", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["a"]["candidate_id"], told["b"]["candidate_id"]) == (KERNEL.candidate_id, FASTER_KERNEL.candidate_id)
    assert told["b"]["files"] == ["kernel.cpp", "rows.h"]
    assert told["diff"].startswith("--- kernel.cpp")


def test_the_same_version_twice_is_no_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, sequel())
    assert main(["diff", RUN_ID, "2", "n0", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "+++ /dev/null"
    assert main(["diff", RUN_ID, "best", "3", "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, "no difference" in printed.err) == ("", True)


def test_cost_is_said_by_role_and_added_up_over_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, story(), "relu-one")
    on_disk(tmp_path, sequel(), "relu-two")
    assert main(["cost", "relu-one", "relu-two", "relu-one", "--runs-dir", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(run["run"], run["coder"]["calls"], run["rounds"]) for run in told["runs"]] == [
        ("relu-one", 2, 2),
        ("relu-two", 3, 3),
    ]
    assert (told["total"]["models"]["calls"], told["total"]["coder"]["latency_s"]) == (5, 0.5)
    assert main(["cost", "relu-two", "--runs-dir", str(tmp_path)]) == 0
    assert "coder        3" in capsys.readouterr().out


def test_cost_is_said_in_dollars_for_who_gives_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage = Usage(calls=3, prompt_tokens=1_000_000, cached_tokens=400_000, completion_tokens=200_000)
    assert Price(input_usd=2.0, cached_usd=0.5, output_usd=10.0).of(usage) == pytest.approx(1.2 + 0.2 + 2.0)
    on_disk(tmp_path, story())
    words = ["cost", RUN_ID, "--runs-dir", str(tmp_path), "--prompt-usd", "2"]
    assert main([*words, "--completion-usd", "10"]) == 0
    assert "DOLLARS" in capsys.readouterr().out
    assert main(words) == 2
    assert "--prompt-usd and --completion-usd are needed" in capsys.readouterr().err
    assert main([*words, "--completion-usd", "-1"]) == 2


@pytest.mark.parametrize("command", ["tree", "diff", "cost"])
def test_a_damaged_journal_is_named_with_its_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(on_disk(tmp_path, story()))
    assert main([command, RUN_ID, "--runs-dir", str(tmp_path)]) == 3
    assert "line 4" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["tree", "diff", "cost"])
def test_an_unknown_run_is_bad_input(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, story())
    assert main([command, RUN_ID[:-1], "--runs-dir", str(tmp_path)]) == 2
    assert f"did you mean '{RUN_ID}'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [("tree",), ("tree", "--why"), ("diff",), ("cost",), ("tell", "--list"), ("pause",)]
)
def test_a_run_that_has_not_begun_is_said_to_be_so_by_every_command(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "early").mkdir()
    save_config(RunConfig(task="relu"), tmp_path / "early" / "config.json")
    name, *flags = command
    assert main([name, "early", *flags, "--runs-dir", str(tmp_path)]) == 2
    assert "run 'early' has not begun yet" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "code"), [("tree", 0), ("diff", 2), ("cost", 0)])
def test_a_run_that_was_killed_at_its_start_can_be_looked_at(
    command: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk(tmp_path, story(None)[:1])
    assert main([command, RUN_ID, "--runs-dir", str(tmp_path)]) == code
    assert "Traceback" not in capsys.readouterr().err
