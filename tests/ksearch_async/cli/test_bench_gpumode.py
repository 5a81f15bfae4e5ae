"""`ksearch bench gpumode` and `ksearch eval gpumode:…`: what a submission would be ranked by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ksearch_async.cli import main
from tests.evaluators.tasks.gpumode import problems


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Write three problems: one is for several GPUs."""
    problems.masked(tmp_path)
    problems.with_room(tmp_path)
    problems.write_problem(tmp_path, "several", f"{problems.MASKED_YML}multi_gpu: true\n", problems.MASKED)
    return tmp_path / "set"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_each_problem_has_its_fate_and_its_figures(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submissions = tmp_path / "submissions"
    submissions.mkdir()
    (submissions / "masked.py").write_text(problems.MASKED_WRONG)
    words = ["bench", "gpumode", "--root", str(root), "--candidates", str(submissions), "--size", "published"]
    assert main([*words, "--json"]) == 1
    masked, room, several = json.loads(capsys.readouterr().out)["rows"]
    assert (masked["problem"], masked["fate"]) == ("masked", "wrong")
    assert masked["competition"] == {
        "ranking_by": "geom",
        "as_meant_us": None,
        "as_upstream_us": None,
        "benchmarks": {},
    }
    assert (room["problem"], room["fate"], room["competition"]) == ("room_py", "no_candidate", None)
    assert (several["problem"], several["fate"]) == ("several", "unusable")
    assert "several GPUs at once" in several["reason"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_an_evaluation_says_what_the_submission_would_be_ranked_by(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "submission.py").write_text(problems.MASKED_RIGHT)
    task = f"gpumode:{root / 'masked'}:benchmark,upstream-benchmark"
    main(["eval", task, str(tmp_path / "submission.py"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] in {"measured", "unstable", "outpaced"}, told["reason"]
    figures = told["competition"]
    assert figures["ranking_by"] == "geom"
    if told["verdict"] == "measured":  # a busy host may not be timed on
        latencies = figures["benchmarks"]
        assert figures["as_meant_us"] == pytest.approx((latencies["benchmark/0"] * latencies["benchmark/1"]) ** 0.5)
        assert figures["as_upstream_us"] > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["gpumode"], "no problems are named"),
        (["gpumode", "--root", "{tmp}"], "holds no GPUMode problem"),
        (["gpumode", "--root", "{tmp}/set", "--ids", "maskd"], "there is no problem 'maskd'"),
        (["gpumode", "--root", "{tmp}/set", "--level", "1"], "--level is for kernelbench"),
        (["gpumode", "--root", "{tmp}/set", "--search"], "--search is for kernelbench"),
        (["kernelbench"], "--level is missing"),
    ],
)
def test_what_cannot_be_benched_is_refused(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "{tmp}/set" in arguments:
        problems.masked(tmp_path)
    assert main(["bench", *(word.format(tmp=tmp_path) for word in arguments)]) == 2
    assert complaint in capsys.readouterr().err


def test_only_the_problems_that_are_named_are_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "gpumode", "--root", str(root), "--ids", "several"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[1].split()[:2] == ["several", "unusable"]
    assert printed[-2:] == [
        "correct    0 of 1; 0 have a figure, smaller is better",
        "score      none: benchmarks are timed with --size published",
    ]
