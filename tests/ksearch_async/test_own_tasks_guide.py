"""What the guide to tasks of one's own shows is understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from evaluators.tasks import load_task
from evaluators.tasks.own.document import Document, Draft, Input, Rules, write_task
from ksearch_async.cli import app
from tests.ksearch_async.test_guides import commands

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "own-tasks.md").read_text()


@pytest.mark.parametrize("command", commands(GUIDE))
def test_every_command_of_the_guide_is_understood(command: str) -> None:
    app.parse_args(shlex.split(command, comments=True)[1:], exit_on_error=False, print_error=False)


def test_the_document_of_the_guide_is_a_task(tmp_path: Path) -> None:
    folder = write_task(tmp_path, "row_norm")
    document, reference = re.search(r"```toml\n(.*?)```", GUIDE, re.DOTALL), folder / "reference.py"
    assert document is not None
    (folder / "task.toml").write_text(document[1])
    reference.write_text("def row_norm(x, eps):\n    return x\n")
    assert [workload.name for workload in load_task(str(folder)).workloads] == ["small", "odd"]


def test_every_key_is_in_the_guide() -> None:
    for kind in (Document, Input, Rules, Draft):
        for field in msgspec.structs.fields(kind):
            assert re.search(rf"[`\[. ]{field.name}[`\]= ]", GUIDE), field.name
