"""What the guide to the evaluator shows is what happens."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ksearch_async.cli import app
from tests.ksearch_async.test_guides import commands

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "evaluate.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
SAID = (r"^(measured|unstable) ", r"^wrong - .*\ndid_not_build - .*\nwrong wrong$")
"""What each prints, as a pattern."""


@pytest.mark.parametrize("command", commands(GUIDE))
def test_every_command_of_the_guide_is_understood(command: str) -> None:
    words = [word.replace("…", "x") for word in shlex.split(command, comments=True)[1:]]
    app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.long
@pytest.mark.parametrize(("example", "said"), list(zip(EXAMPLES, SAID, strict=True)), ids=["one", "several"])
def test_the_examples_run_and_print_what_they_should(example: str, said: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout, re.MULTILINE), done.stdout
