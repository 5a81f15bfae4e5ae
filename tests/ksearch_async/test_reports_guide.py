"""What the guide to reports tells people to type is understood, and comes out as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ksearch_async.cli import app, compare, main
from tests.ksearch_async.stories import on_disk
from tests.ksearch_async.views.report.recorded import gpu_records

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "reports.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^\$ (ksearch .*)$", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("command", TYPED)
def test_every_command_of_the_guide_is_understood(command: str) -> None:
    app.parse_args(shlex.split(command)[1:], exit_on_error=False, print_error=False)


def test_the_comparison_of_the_guide_is_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 2):
        on_disk(tmp_path / "runs", gpu_records(f"softmax_rows_{number}_h200"), f"softmax-{number}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "terminal_width", lambda: 80)
    assert main(["compare", "softmax-1", "softmax-2"]) == 0
    told = GUIDE.partition("$ ksearch compare softmax-1 softmax-2\n")[2].partition("```")[0]
    assert capsys.readouterr().out == told
