"""What people do wrong is one clear line and exit code 2; the command line starts fast and anywhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from ksearch_async.cli import _COMMANDS as COMMANDS
from ksearch_async.cli import main

FAILING_PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

def get_inputs():
    raise RuntimeError("no inputs today")

def get_init_inputs():
    return []
"""


def ksearch(
    *words: str | Path, cwd: Path, environment: Mapping[str, str] | None = None, timeout_s: float = 60
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KSEARCH_", "OPENAI_"))}
    command = [sys.executable, "-m", "ksearch_async", *map(str, words)]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


BAD_INPUT: dict[str, tuple[list[str], str]] = {
    "unknown problem": (["run", "rmsnorm_sillu"], "rmsnorm_silu"),
    "missing problem file": (["run", "none.py"], "cannot read problem file 'none.py'"),
    "broken problem file": (["run", "broken.py"], "broken.py"),
    "problem that lacks a part": (["run", "partial.py"], "does not define"),
    "no task": (["run"], "no task given"),
    "unknown flag": (["run", "rmsnorm_silu", "--branchs", "2"], "Did you mean --branches?"),
    "unknown command": (["rum"], 'Did you mean "run"?'),
    "wrong kind of value": (["run", "rmsnorm_silu", "--branches", "two"], "--branches"),
    "value out of range": (["run", "rmsnorm_silu", "--branches", "0"], "--branches: expected int >= 1"),
    "unknown language": (["run", "rmsnorm_silu", "--language", "cobol"], "cobol"),
    "language of a program": (["run", "p.py", "--score-with", "e.py", "--language", "triton"], "programs are Python"),
    "one word too many": (["run", "rmsnorm_silu", "relu"], "relu"),
    "unknown key": (["run", "rmsnorm_silu", "-c", "typo.toml"], "did you mean 'branches'?"),
    "missing configuration file": (["run", "rmsnorm_silu", "-c", "none.toml"], "none.toml"),
    "model without key": (["run", "rmsnorm_silu", "--model", "m"], "needs a key"),
    "address without model": (["run", "rmsnorm_silu", "--base-url", "http://h"], "--model NAME"),
    "unwritable folder": (["run", "rmsnorm_silu", "--runs-dir", "file/runs"], "cannot write to 'file/runs'"),
    "unknown run to show": (["show", "nothing"], "no run 'nothing'"),
    "unknown run to resume": (["resume", "nothing"], "no run 'nothing'"),
    "run to resume in a folder without any": (["resume", "--runs-dir", "other"], "no runs in 'other'"),
    "no runs at all": (["best"], "no runs in 'runs'"),
    "setting that a resumed run keeps": (
        ["resume", "one", "--branches", "2"],
        "--branches cannot change when a run is",
    ),
    "the same with its value": (["resume", "one", "--language=cuda"], "error: --language cannot change"),
    "the same switched off": (["resume", "one", "--no-confirm"], "error: --no-confirm cannot change"),
    "unknown flag of resume": (["resume", "one", "--brunches", "2"], "Unknown option: --brunches"),
    "eval of an unknown problem": (["eval", "nothing", "kernel.cpp"], "unknown problem 'nothing'"),
    "eval of a missing source": (["eval", "rmsnorm_silu", "none.cpp"], "none.cpp"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "broken.py").write_text("class Model(:\n")
    (tmp_path / "partial.py").write_text("class Model: pass\n")
    (tmp_path / "typo.toml").write_text("[search]\nbranchs = 2\n")
    (tmp_path / "kernel.cpp").write_text("int main() {}\n")
    (tmp_path / "file").write_text("")
    return tmp_path


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, said = BAD_INPUT[case]
    monkeypatch.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("KSEARCH_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    assert main(words) == 2
    out, err = capsys.readouterr()
    first, *rest = err.splitlines()
    assert first.startswith("error: ")
    assert said in err
    assert all(line.startswith("hint: ") for line in rest)
    assert out == ""
    assert not (folder / "runs").exists()


def test_bad_input_is_a_processs_exit_code_too(folder: Path) -> None:
    words, said = BAD_INPUT["unknown flag"]
    done = ksearch(*words, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("words", [["run", "rmsnorm_silu"], ["eval", "rmsnorm_silu", "kernel.cpp"]])
def test_without_a_compiler_nothing_starts(words: list[str], folder: Path) -> None:
    done = ksearch(*words, cwd=folder, environment={"PATH": "", "CXX": ""})
    assert done.returncode == 2, done.stderr
    assert "compiler" in done.stderr.splitlines()[0]
    assert "Traceback" not in done.stderr


def test_a_problem_that_fails_when_it_is_run_leaves_no_run_behind(folder: Path) -> None:
    (folder / "failing.py").write_text(FAILING_PROBLEM)
    done = ksearch("run", "failing.py", cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "no inputs today" in next(line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert list((folder / "runs").iterdir()) == []


def test_a_problem_that_leaves_the_interpreter_is_bad_input(folder: Path) -> None:
    (folder / "leaving.py").write_text(
        FAILING_PROBLEM.replace('raise RuntimeError("no inputs today")', "raise SystemExit(3)")
    )
    done = ksearch("run", "leaving.py", cwd=folder)
    assert done.returncode == 2, done.stderr
    assert "get_inputs() raises SystemExit: 3" in done.stderr


AT_A_TERMINAL = (
    sys.executable,
    "-c",
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])",
)
"""Heeds Ctrl-C, even where the tests themselves are a background job."""
AS_A_BACKGROUND_JOB = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
"""A shell without job control has its background jobs ignore Ctrl-C."""


@pytest.mark.parametrize(
    ("launcher", "number"),
    [(AT_A_TERMINAL, signal.SIGINT), (AS_A_BACKGROUND_JOB, signal.SIGTERM)],
)
def test_a_signal_while_the_reference_is_checked_leaves_no_run_behind(
    launcher: tuple[str, ...], number: signal.Signals, folder: Path
) -> None:
    hanging = FAILING_PROBLEM.replace('raise RuntimeError("no inputs today")', "import time; time.sleep(1000)")
    (folder / "hanging.py").write_text(hanging)
    command = [*launcher, sys.executable, "-m", "ksearch_async", "run", "hanging.py"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "checking the reference ...\n"
        running.send_signal(number)
        assert running.wait(timeout=60) == 130
    assert list((folder / "runs").iterdir()) == []


def test_every_command_is_listed_under_a_heading_of_its_own_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    commands, _, options = capsys.readouterr().out.partition(" Options ")
    starts = [line.split()[1] for line in options.splitlines() if line.startswith("│ ") and line[2] != " "]
    assert starts == ["--help", "--version"]
    assert all(f"│ {name} " in commands for name in ("run", "compare", "report"))


@pytest.mark.parametrize("command", [name for name in COMMANDS if not name.startswith("-")])
def test_each_option_of_a_command_has_a_text_and_is_declared_once(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main([command, "--help"])
    named = r"(?:--[a-z-]+|[A-Z][A-Z_]+(?: --[a-z-]+)?)(?: [A-Z]+)*"
    bare = re.compile(rf"^│ +(?:\* +)?{named} +(?:\[[^]]*\] *)*│$", re.MULTILINE)
    page = capsys.readouterr().out
    assert [line.group() for line in bare.finditer(page)] == []
    options = re.findall(r"^│ {1,4}(?:\* +)?(?:[A-Z_]+ )?(--[a-z-]+)", page, re.MULTILINE)
    assert [option for option, times in Counter(options).items() if times > 1] == []


def test_errors_are_json_too_for_who_asks_for_json(folder: Path) -> None:
    done = ksearch("show", "nothing", "--json", cwd=folder)
    assert json.loads(done.stdout)["error"] == "no run 'nothing'"
    assert done.returncode == 2


def test_a_misspelt_variable_is_refused(folder: Path) -> None:
    done = ksearch("run", "rmsnorm_silu", cwd=folder, environment={"KSEARCH_BRANCHS": "2"})
    assert done.returncode == 2
    assert "did you mean 'KSEARCH_BRANCHES'?" in done.stderr


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["run", "--help"], ["doctor", "--help"], ["tasks"], ["completion", "bash"]]
)
def test_help_loads_neither_torch_nor_a_model_client(words: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from ksearch_async.cli import main\n"
        f"code = main({words!r})\n"
        "heavy = {'torch', 'triton', 'openai', 'httpx', 'httpx2', 'starlette', 'uvicorn'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("name", ["messages", "actors", "evaluators"])
def test_a_stray_package_in_the_current_folder_is_not_taken_for_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("raise SystemExit('the stray package was imported')\n")
    done = ksearch("show", "nothing", cwd=tmp_path)
    assert done.stderr.startswith("error: no run 'nothing'")


def test_a_reader_that_goes_away_leaves_no_traceback(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "ksearch_async", "doctor"]
    done = subprocess.run(command, cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write_end)
    assert done.returncode == 141
    assert done.stderr == ""


@pytest.mark.parametrize("words", [("doctor",), ("tasks",), ("run", "nothing", "--json"), ("--help",)])
def test_a_reader_of_both_streams_that_goes_away_is_no_failure(words: tuple[str, ...], tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "ksearch_async", *words]
    done = subprocess.run(command, cwd=tmp_path, stdout=write_end, stderr=write_end, check=False)
    os.close(write_end)
    assert done.returncode == 141


def test_the_doctor_looks_at_compiler_packages_and_folder(tmp_path: Path) -> None:
    done = ksearch("doctor", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    names = {finding["name"] for finding in report["findings"]}
    assert {"python", "machine", "gpu", "compiler", "torch", "triton", "model", "runs"} <= names
    assert (done.returncode == 0) == report["healthy"]


def test_the_doctor_says_that_an_endpoint_cannot_be_reached(tmp_path: Path) -> None:
    done = ksearch("doctor", "--base-url", "http://127.0.0.1:9", cwd=tmp_path)
    assert done.returncode == 3
    assert "missing  model          http://127.0.0.1:9 cannot be reached" in done.stdout


def test_the_doctor_never_shows_a_key(tmp_path: Path) -> None:
    done = ksearch("doctor", cwd=tmp_path, environment={"OPENAI_API_KEY": "sk-very-secret"})
    assert "a key is set" in done.stdout
    assert "secret" not in done.stdout + done.stderr
