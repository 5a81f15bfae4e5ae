"""`ksearch show RUN CANDIDATE`: what was written, and what compiler and evaluator said of it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ksearch_async.cli import main
from ksearch_async.cli.eval import profile_table
from messages.codec import Body
from messages.events import Built, CandidateBuilt, CandidateEvaluated
from messages.verdicts import DidNotBuild
from tests.ksearch_async.cli.test_profiles import MEASURED, PROFILE
from tests.ksearch_async.stories import FASTER_KERNEL, KERNEL, RUN_ID, SLOPPY, TARGET, on_disk, records_of, sequel


def shown(folder: Path, *arguments: str) -> int:
    return main(["show", RUN_ID, *arguments, "--runs-dir", str(folder)])


def with_builds(folder: Path, *outcomes: Built | DidNotBuild) -> None:
    told = sequel()
    built: list[Body] = [
        CandidateBuilt(job_id="x", candidate_id=FASTER_KERNEL.candidate_id, outcome=outcome, target=TARGET)
        for outcome in outcomes
    ]
    on_disk(folder, [*told, *records_of(built, after=len(told))])


@pytest.mark.parametrize("name", ["3", "best", FASTER_KERNEL.candidate_id[:6]])
def test_a_candidate_is_named_by_round_by_the_beginning_of_its_id_or_as_the_best(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_builds(tmp_path, Built(artifact_id="a", log="warning: unused\n" * 30), Built(artifact_id="a"))
    assert shown(tmp_path, name) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        f"candidate  {FASTER_KERNEL.candidate_id}, cpp",
        "found      in round 3: n2, split the rows",
        "built on   round 2, n1, 2.00x",
        "verdict    measured: 2.50x the reference [2.40, 2.60], 40.0 us",
        "           screen: AMD EPYC; 0.0 s, 0.0 s of that alone on the device",
        "file       kernel.cpp, 2 lines",
    ]
    assert lines.count("  warning: unused") == 20
    assert "  and 10 more lines: --json has all of it" in lines
    assert lines[-1] == f"changes: ksearch diff {RUN_ID} {FASTER_KERNEL.candidate_id[:8]}"


def test_a_profile_stands_behind_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = sequel()
    confirmed = CandidateEvaluated(
        job_id="x",
        candidate_id=FASTER_KERNEL.candidate_id,
        verdict=msgspec.structs.replace(MEASURED, profile=(PROFILE,)),
        purpose="confirm",
        device="NVIDIA H200",
    )
    on_disk(tmp_path, [*told, *records_of([confirmed], after=len(told))])
    assert shown(tmp_path, "best") == 0
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("           confirm: NVIDIA H200; 0.0 s, 0.0 s of that alone on the device")
    assert lines[place + 1 : place + 6] == profile_table((PROFILE,))


def test_a_candidate_that_did_not_build_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_builds(tmp_path, DidNotBuild(reason="no member 'x'", log="kernel.cpp:3: error\n"))
    assert shown(tmp_path, "best") == 0
    printed = capsys.readouterr().out
    assert "verdict    did not build: no member 'x'" in printed
    assert "  kernel.cpp:3: error" in printed


def test_its_files_are_printed_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_builds(tmp_path)
    assert shown(tmp_path, "best", "--source") == 0
    assert capsys.readouterr().out == "// fast\n#include <rows.h>\n// rows\n"


def test_a_script_gets_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_builds(tmp_path, Built(artifact_id="a", log="warning"))
    assert shown(tmp_path, "3", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["node_id"], told["round"], told["base_id"]) == ("n2", 3, KERNEL.candidate_id)
    assert [file["path"] for file in told["files"]] == ["kernel.cpp", "rows.h"]
    assert (told["build_log"], told["did_not_build"]) == ("warning", "")
    assert told["verdicts"][0]["verdict"]["latency_us"] == 40.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("9",), "no round 9"),
        ((f"{SLOPPY.candidate_id[:5]}x",), "no candidate"),
        (("best", "--prompt"), "are about a node"),
        (("n1", "--source"), "--source is about a candidate"),
        (("--source",), "--source is about a candidate"),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with_builds(tmp_path)
    assert shown(tmp_path, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
