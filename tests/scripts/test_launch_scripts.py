"""The launch scripts with the original K-Search's names: its variables become arguments of `ksearch run`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ksearch_async.cli import main

SCRIPTS = Path(__file__).parents[2] / "scripts"
NAMES = ("gpumode_trimul_wm.sh", "kernelbench_wm.sh", "mla_decode_wm.sh")
NEEDED = {
    "gpumode_trimul_wm.sh": {"GPUMODE_TASK_DIR": "problems/trimul"},
    "kernelbench_wm.sh": {"DATASET_ROOT": "KB"},
    "mla_decode_wm.sh": {"DATASET_ROOT": "traces"},
}
"""What each cannot do without."""
SHOWS = '#!/bin/sh\nprintf "%s\\n" "$@"\nprintf "key=%s kb=%s\\n" "${KSEARCH_API_KEY-}" "${KSEARCH_KERNELBENCH-}"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout with these scripts, in which `ksearch` says what it is told."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copytree(SCRIPTS, tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    ksearch = tmp_path / ".venv" / "bin" / "ksearch"
    ksearch.write_text(SHOWS)
    ksearch.chmod(0o755)
    return tmp_path


def launched(checkout: Path, name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin"} | variables
    command = ["bash", str(checkout / "scripts" / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def told(checkout: Path, name: str, *arguments: str, **variables: str) -> list[str]:
    done = launched(checkout, name, *arguments, **NEEDED[name], **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_problem_of_kernelbench_is_searched_with_the_originals_defaults(checkout: Path) -> None:
    said = told(checkout, "kernelbench_wm.sh", "--dry-run", DEVICE="cuda:1")
    assert said == [
        "run",
        "kernelbench:1/1",
        *("--language", "triton", "--max-rounds", "50", "--runs-dir", ".ksearch"),
        *("--world-model", "evolving", "--window", "5", "--device", "cuda:1"),
        "--dry-run",
        "key= kb=KB",
    ]


def test_the_variables_of_kernelbench_choose_problem_language_and_budget(checkout: Path) -> None:
    given = {"LEVEL": "2", "PROBLEM_ID": "17", "LANGUAGE": "cuda", "MAX_OPT_ROUNDS": "7", "WM": "0", "DEVICE": "cpu"}
    more = {
        "ARTIFACTS_DIR": "out",
        "RUN_NAME": "mine",
        "MODEL_NAME": "m",
        "BASE_URL": "http://x/v1",
        "API_KEY": "secret",
    }
    said = told(checkout, "kernelbench_wm.sh", **given, **more)
    assert said[1] == "kernelbench:2/17:cpu"
    pairs = dict(zip(said[2:-1:2], said[3:-1:2], strict=True))
    assert pairs == {
        "--language": "cuda",
        "--max-rounds": "7",
        "--runs-dir": "out",
        "--world-model": "off",
        "--device": "cpu",
        "--model": "m",
        "--base-url": "http://x/v1",
        "--run-name": "mine",
    }
    assert said[-1] == "key=secret kb=KB"


def test_what_is_not_taken_over_is_said(checkout: Path) -> None:
    given = {"NUM_CORRECT_TRIALS": "5", "NUM_PERF_TRIALS": "100"}
    said = launched(checkout, "kernelbench_wm.sh", **NEEDED["kernelbench_wm.sh"], **given)
    assert said.returncode == 0
    for name in given:
        assert f"note: {name}: " in said.stderr


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"DATASET_ROOT": ""}, "DATASET_ROOT is not set"),
        ({"LEVEL": "4"}, "LEVEL=4 is not supported"),
        ({"LLM_PROVIDER": "claude-agent"}, "LLM_PROVIDER=claude-agent is not supported"),
    ],
)
def test_what_cannot_be_done_is_refused(checkout: Path, variables: dict[str, str], complaint: str) -> None:
    said = launched(checkout, "kernelbench_wm.sh", **(NEEDED["kernelbench_wm.sh"] | variables))
    assert said.returncode == 2
    assert f"error: {complaint}\nhint: " in said.stderr


def test_another_mode_of_evaluation_is_ksearchs_to_take_or_refuse(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = told(checkout, "kernelbench_wm.sh", EVAL_MODE="nowhere")
    assert said[-3:-1] == ["--kernelbench-eval-mode", "nowhere"]
    assert main(said[:-1]) == 2
    assert "--kernelbench-eval-mode nowhere" in capsys.readouterr().err


@pytest.mark.parametrize("name", NAMES)
def test_weights_and_biases_is_told_of_the_run_if_a_variable_says_so(checkout: Path, name: str) -> None:
    assert "--track wandb" in " ".join(told(checkout, name, WANDB="1"))
    assert "--track" not in told(checkout, name, WANDB="0")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_says_what_it_needs(checkout: Path, name: str) -> None:
    said = launched(checkout, name)
    assert said.returncode == 2
    (variable,) = NEEDED[name]
    assert f"error: {variable} is not set\nhint: " in said.stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_in_no_command_line(checkout: Path, name: str) -> None:
    said = told(checkout, name, API_KEY="secret", LLM_API_KEY="other", MODEL_NAME="m")
    assert said[-1].startswith("key=secret ")
    assert "secret" not in "\n".join(said[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_arguments_go_to_ksearch_behind_the_variables(checkout: Path, name: str) -> None:
    assert told(checkout, name, "--max-rounds", "3", "a b")[-4:-1] == ["--max-rounds", "3", "a b"]


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_that_a_script_reads_is_in_its_head(name: str) -> None:
    text = (SCRIPTS / name).read_text()
    head, body = text.split("set -euo pipefail")
    read = {word.split(":-")[0] for word in body.split("${")[1:]}
    for variable in (word.partition("}")[0].rstrip("-:[@*#") for word in read):
        if variable.isupper() and not variable.startswith(("BASH_", "FIB_")):
            assert variable in head, variable
