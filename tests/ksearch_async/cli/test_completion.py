"""Completion, as a shell does it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ksearch_async.cli import main

COMPLETE = """
source "$1"
entry=$(complete -p ksearch) || exit 9
function_name=$(sed -E 's/.*-F ([^ ]+).*/\\1/' <<< "$entry")
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
COMP_LINE="$*"
COMP_POINT=${#COMP_LINE}
"$function_name" ksearch "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script_of(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", shell]) == 0
    path = folder / f"ksearch.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["r"], {"run", "resume"}),
        (["run", "--max-r"], {"--max-rounds"}),
        (["run", "--sync", ""], {"always", "never"}),
        (["tasks", "s"], {"show"}),
        (["completion", ""], {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes_commands_options_and_choices(
    words: list[str], expected: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = script_of("bash", tmp_path, capsys)
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", COMPLETE, "bash", str(script), "ksearch", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert {word.strip() for word in done.stdout.split()} >= expected
    assert all(word.startswith(words[-1]) for word in done.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_read_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = script_of(shell, tmp_path, capsys)
    assert "ksearch" in script.read_text()
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([program, "-n", str(script)], timeout=60, check=True)


def test_a_shell_that_is_not_known_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "tcsh" in capsys.readouterr().err
