"""`ksearch report` at the shell."""

from __future__ import annotations

import importlib.util
import json
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from ksearch_async.cli import main
from ksearch_async.views.report import gallery
from tests.ksearch_async.stories import on_disk, story


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    on_disk(tmp_path / "runs", story(), "mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_page_and_figures_are_written_where_they_are_wanted(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "mine", "-o", "out/report.html", "--svg", "figures", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert written[:2] == ["out/report.html", "figures/search-trace.svg"]
    assert len(written) == 6
    assert (workplace / "out" / "report.html").read_bytes().startswith(b"<!doctype html>")
    assert all((workplace / name).stat().st_size > 1000 for name in written)


def test_pngs_are_pngs(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(workplace / "runs", story()[:11], "begun")
    assert main(["report", "begun", "--png", "."]) == 0
    assert capsys.readouterr().out.splitlines() == ["search-trace.png", "tree.png"]
    assert (workplace / "tree.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_of_which_nothing_can_be_drawn_says_so(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(workplace / "runs", story()[:2], "fresh")
    assert main(["report", "fresh", "--svg", "figures"]) == 0
    assert "nothing was evaluated yet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mine"], "nothing to write is named"),
        (["mine", "mine", "-o", "r.html"], "run 'mine' is named twice"),
        (["yours", "-o", "r.html"], "no run 'yours'"),
        (["mine", "-o", "runs/mine/journal.jsonl/r.html"], "cannot write 'runs/mine/journal.jsonl/r.html'"),
    ],
)
@pytest.mark.usefixtures("workplace")
def test_bad_input_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("workplace")
def test_without_matplotlib_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "matplotlib" else importlib.util.find_spec(name, package)

    monkeypatch.setattr(gallery, "find_spec", find_spec)
    assert main(["report", "mine", "-o", "r.html"]) == 2
    assert 'pip install "ksearch-async[plot]"' in capsys.readouterr().err
