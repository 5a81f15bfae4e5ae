"""How people name a task."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks.selectors import Selector, anchored, is_gone, is_there, parse_selector


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "set" / "gemm").mkdir(parents=True)
    (tmp_path / "mine.py").write_text("")
    (tmp_path / "odd:name").write_text("")


@pytest.mark.parametrize(
    ("name", "source", "path", "rest"),
    [
        ("flashinfer:set#gemm_n128:3", "flashinfer", "set", "#gemm_n128:3"),
        ("mine.py:short,long", "", "mine.py", ":short,long"),
        ("set/gemm", "", "set/gemm", ""),
        ("odd:name", "", "odd:name", ""),
        ("kernelbench:1/23", "kernelbench", None, ""),
        ("softmax_rows:gpu", "", None, ""),
        ("program:mine.py", "", None, ""),
    ],
)
def test_a_name_is_taken_apart(name: str, source: str, path: str | None, rest: str) -> None:
    within = name.removeprefix(f"{source}:") if source else name
    assert parse_selector(name) == Selector(
        source=source, within=within, path=None if path is None else Path(path), rest=rest
    )


def test_an_anchored_name_holds_the_whole_path(tmp_path: Path) -> None:
    assert anchored("flashinfer:set#gemm") == f"flashinfer:{tmp_path}/set#gemm"
    assert anchored("mine.py:short") == f"{tmp_path}/mine.py:short"
    assert anchored("kernelbench:1/23") == "kernelbench:1/23"
    assert anchored("nowhere.py") == f"{tmp_path}/nowhere.py"


def test_a_name_is_there_if_its_path_is() -> None:
    assert is_there("own:set")
    assert not is_there("own:nowhere")


def test_a_name_is_gone_if_it_is_anchored_and_its_path_is_not_there(tmp_path: Path) -> None:
    for name in (anchored("flashinfer:set#gemm"), anchored("mine.py:short"), "kernelbench:1/23", "softmax_rows:gpu"):
        assert not is_gone(name)
    assert is_gone(anchored("nowhere.py"))
    assert is_gone(f"flashinfer:{tmp_path}/nowhere#gemm")
