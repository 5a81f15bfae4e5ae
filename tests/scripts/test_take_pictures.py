"""The README's pictures of the dashboard: taken by a script, small, and those that the README shows are there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_BYTES = 200_000
PNG = b"\x89PNG\r\n\x1a\n"


def test_pictures_that_the_readme_shows_are_there_and_small() -> None:
    shown = re.findall(r"!\[[^\]]+\]\((docs/pictures/[^)]+\.png)\)", (ROOT / "README.md").read_text())
    assert {Path(name).name for name in shown} >= {"run.png", "node.png"}
    for name in shown:
        assert (ROOT / name).read_bytes().startswith(PNG)
        assert (ROOT / name).stat().st_size < MAX_BYTES


@pytest.mark.long
@pytest.mark.browser
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser: apt install chromium")
def test_pictures_are_taken_of_recorded_searches(tmp_path: Path) -> None:
    command: list[str | Path] = [sys.executable, ROOT / "scripts/take_pictures", "--recorded", "--out", tmp_path]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [Path(line.split(":")[0]).name for line in said.splitlines()] == ["run.png", "node.png", "compare.png"]
    assert all(path.read_bytes().startswith(PNG) for path in tmp_path.iterdir())
