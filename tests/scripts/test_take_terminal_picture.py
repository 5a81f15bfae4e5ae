"""The README's picture of a terminal: what the live view draws today, and nothing is fetched to look at it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "docs/pictures/terminal.svg"


def test_the_picture_is_what_the_live_view_draws_now(tmp_path: Path) -> None:
    taken = tmp_path / "terminal.svg"
    subprocess.run([sys.executable, ROOT / "scripts/take_terminal_picture", "--out", taken], check=True)
    assert taken.read_text() == SHIPPED.read_text(), "take it again: scripts/take_terminal_picture"


def test_the_picture_brings_no_font_and_names_no_address() -> None:
    text = SHIPPED.read_text()
    assert set(re.findall(r"https?://[^\"'\s)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@font-face|url\((?!#)|<script|<image|<!--", text)
    assert "of 60" in text.replace("&#160;", " ")
