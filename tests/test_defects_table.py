"""docs/design/0006 names tests: each of them exists, and each defect has one."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "design" / "0006-defects-of-the-original.md"
ROW = re.compile(r"^\| (?P<number>\d+) \|(?P<text>.*)$", re.MULTILINE)
NAMED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


def rows() -> dict[int, list[str]]:
    text = TABLE.read_text(encoding="utf-8")
    return {int(row["number"]): NAMED.findall(row["text"]) for row in ROW.finditer(text)}


def test_every_test_that_the_table_names_exists() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    defined = {name for text in texts for name in DEFINED.findall(text)}
    missing = {name for names in rows().values() for name in names} - defined
    assert not missing


def test_each_defect_of_the_search_and_of_its_robustness_has_a_test() -> None:
    found = rows()
    assert sorted(found) == list(range(6, 28))
    assert all(found.values())
