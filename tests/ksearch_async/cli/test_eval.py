"""`ksearch eval` at the shell: several sources, repeats, a run's best, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ksearch_async.cli import eval as eval_module
from ksearch_async.cli import main
from ksearch_async.cli.eval import as_object, lines_of, repeats_lines, repeats_object
from ksearch_async.evaluation.settings import Evaluation
from ksearch_async.views import terminal
from messages.codec import encode_line
from messages.tasks import Target
from messages.verdicts import CallCheck, Interval, Measured, Unstable, Verdict
from tests.evaluators.words import RIGHT, SMALL_TASK, after
from tests.ksearch_async.stories import RUN_ID, story


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(SMALL_TASK.text)
    (tmp_path / "wrong.cpp").write_text(after("y[3] = 7;"))
    (tmp_path / "broken.cpp").write_text("int x")
    (tmp_path / "right.cpp").write_text(RIGHT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("workplace")
def test_several_sources_give_an_object_a_line_each_when_it_is_known(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    first: list[str] = []

    def put_json(value: object) -> None:
        said = capsys.readouterr()
        begun.append(said.err)
        first.append(said.out)
        terminal.put_json(value)

    monkeypatch.setattr(eval_module, "put_json", put_json)
    assert main(["eval", "small.py", "broken.cpp", "wrong.cpp", "--json"]) == 1
    assert "wrong.cpp" not in begun[0]  # the second source had not begun when the first was told
    out, err = capsys.readouterr()[0], begun[1]
    told = [json.loads(first[1]), json.loads(out)]
    assert [(one["source"], one["verdict"]) for one in told] == [
        ("broken.cpp", "did_not_build"),
        ("wrong.cpp", "wrong"),
    ]
    assert told[1]["judge_s"] > 0 == told[0]["judge_s"]
    assert "wrong.cpp: checking and timing ..." in err.splitlines()


@pytest.mark.usefixtures("workplace")
def test_repeats_are_told_each_and_one_source_stays_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "small.py", "wrong.cpp", "--repeat", "2", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["source"], told["verdict"], len(told["repeats"])) == ("wrong.cpp", "wrong", 2)
    assert main(["eval", "small.py", "broken.cpp", "--repeat", "2"]) == 1
    out, err = capsys.readouterr()
    assert "repeats    2 in fresh processes: did_not_build, did_not_build" in out.splitlines()
    assert "broken.cpp, 2 of 2: building ..." in err.splitlines()


def test_a_runs_best_is_evaluated_against_the_runs_own_task(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workplace / "runs" / RUN_ID).mkdir(parents=True)
    (workplace / "runs" / RUN_ID / "journal.jsonl").write_bytes(b"".join(map(encode_line, story("rounds"))))
    assert main(["eval", "latest", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["task"], told["verdict"], told["purpose"]) == ("relu", "did_not_build", "confirm")


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["small.py"], "no source file is given for 'small.py'"),
        (["softmax_rows"], "no source file is given for 'softmax_rows'"),
        (["no-such-run"], "no run 'no-such-run'"),
        (["small.py", "right.cpp", "none.cpp"], "cannot read source 'none.cpp'"),
        (["small.py", "right.cpp", "--repeat", "0"], "--repeat"),
        (["small.py", "right.cpp", "wrong.cpp", "--compile-for", "sm_90"], "takes one source"),
        (["small.py", "right.cpp", "--threads", "4096"], "--threads 4096: this host gives"),
        (["small.py", "right.cpp", "--measure", "eager"], "--measure eager is for GPUs"),
        (["small.py", "right.cpp", "--baseline", "torch.compile"], "--baseline torch.compile is for GPUs"),
        (["small.py", "right.cpp", "--profile"], "--profile is for GPUs"),
    ],
)
def test_what_cannot_be_evaluated_is_bad_input(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *words]) == 2
    out, err = capsys.readouterr()
    assert complaint in err
    assert out == ""


def measured(speedup: float = 2.0, *, low: float = 1.9, high: float = 2.1) -> Measured:
    return Measured(
        timed=True,
        latency_us=10.0,
        reference_latency_us=20.0,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=low, high=high),
        baseline="torch.compile",
        baseline_latency_us=15.0,
        speedup_vs_baseline=1.5,
        baseline_interval=Interval(low=1.4, high=1.6),
        deterministic=False,
        pairs=40,
        checks=(CallCheck(family="given", max_abs_error=0.0, error_ratio=0.0),),
        notes=("caches begin cold",),
    )


def evaluated(verdict: Verdict) -> Evaluation:
    return Evaluation(
        task="t",
        task_id="1",
        language="cpp",
        candidate_id="ab",
        verdict=verdict,
        device="CPU",
        target=Target(arch="x86_64", march="native", toolchain="g++", device="CPU"),
        isolation=("namespaces", "seccomp"),
        build_s=1.0,
        judge_s=2.0,
    )


def test_all_that_was_measured_is_printed() -> None:
    assert lines_of(evaluated(measured())) == [
        "verdict    measured: correct in 1 checked calls",
        "speedup    2.00x the reference [1.90, 2.10] (95 % interval, 40 pairs)",
        "baseline   1.50x torch.compile [1.40, 1.60], which takes 15.0 us",
        "latency    10.0 us, the reference 20.0 us; CPU",
        "bits       differ between two calls on the same inputs, within the tolerance",
        "note       caches begin cold",
        "isolation  namespaces, seccomp",
        "took       3.0 s: building 1.0 s, checking and timing 2.0 s",
    ]


def test_an_interval_without_credit_is_printed_with_its_reason() -> None:
    shown = evaluated(Unstable(reason="too wide", speedup_interval=Interval(low=1.0, high=3.0)))
    assert lines_of(shown)[:3] == [
        "verdict    unstable",
        "reason     too wide",
        "speedup    [1.00, 3.00] (95 % interval; it gives no credit)",
    ]
    assert as_object(shown)["speedup_interval"] == [1.0, 3.0]


def test_the_spread_of_repeats_is_their_extremes_over_their_median() -> None:
    repeats = [evaluated(measured()), evaluated(measured(2.2, low=2.15, high=2.3)), evaluated(measured(1.98))]
    assert repeats_lines(repeats) == [
        "repeats    3 in fresh processes: 2.00x, 2.20x, 1.98x",
        "spread     11.0 % from lowest to highest; the median is 2.00x, which 2 of 3 intervals cover",
    ]
    assert repeats_object(repeats)["speedups"] == {
        "median": 2.0,
        "lowest": 1.98,
        "highest": 2.2,
        "spread": pytest.approx(0.11),
        "intervals_that_cover_the_median": 2,
    }
