"""What is shown of a run: lines as it goes on, JSON events, summaries from the journal."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import anyio
import msgspec
import pytest

from ksearch_async.cli import main
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Best, Run
from ksearch_async.settings.run_config import ModelSettings, ProgramSettings, RunConfig
from ksearch_async.views import plain
from ksearch_async.views.lines import Narrator, way_on
from ksearch_async.views.plain import JsonView, PlainView
from ksearch_async.views.text import duration, shortened
from messages.base import Usage
from messages.codec import Record
from messages.events import RunStarted
from messages.facts import AttemptFinished, EditsApplied, RunFinished, RunPaused, RunStopping, SpendRecorded
from tests.ksearch_async.stories import KERNEL, RUN_ID, decided, on_disk, records_of, story, untimed_story


def folded(records: list[Record]) -> Run:
    chronicle = Run()
    for record in records:
        chronicle.fold(record)
    return chronicle


def test_the_chronicle_knows_the_best_kernel_its_interval_and_how_it_was_found() -> None:
    best = folded(story()).best("/runs/x/best")
    assert isinstance(best, Best)
    assert (best.candidate_id, best.found_by, best.round) == (KERNEL.candidate_id, ("fuse the passes",), 2)
    assert (best.speedup_vs_reference, best.speedup_interval, best.faster) == (2.0, (1.9, 2.1), True)
    assert (best.latency_us, best.reference_latency_us) == (50.0, 100.0)


def test_time_between_sessions_does_not_count() -> None:
    records = story(None)
    later = [msgspec.structs.replace(record, at=record.at.replace("2026", "2027")) for record in story()[-1:]]
    assert folded(records).elapsed_s == 12.0
    assert folded(records + later).elapsed_s > 12.0


def test_what_is_recorded_after_the_end_takes_no_time() -> None:
    records = story()
    order = records_of([decided(RunPaused(reason="late"))], after=30)
    assert folded(records + order).elapsed_s == folded(records).elapsed_s


def test_each_evaluation_is_a_line_with_round_node_outcome_and_standing() -> None:
    narrator = Narrator(Run())
    lines = [" ".join(line.split()) for record in story() for line in narrator.tell(record)]
    assert lines == [
        "world model: 1 new; 1 open",
        "1/2 fuse the passes wrong: 17 of 64 elements are wrong (no best yet)",
        "2/2 fuse the passes measured: 2.00x the reference [1.90, 2.10], 50.0 us (new best)",
        "stopping: its rounds are used up",
    ]


def test_an_update_that_changes_nothing_is_shown_with_the_models_reason() -> None:
    nothing = EditsApplied(job_id=f"{RUN_ID}-p1", changes=(), summary="No rule for int64.")
    first, opening = story()[:2]
    records = [first, opening, msgspec.structs.replace(opening, seq=3, body=decided(nothing))]
    narrator = Narrator(Run())
    lines = [line.strip() for record in records for line in narrator.tell(record)]
    assert lines == ["world model: no changes; 0 open (No rule for int64.)"]


def test_the_plain_summary_says_speedup_place_origin_fates_and_how_to_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chronicle, folder = Run(), RunFolder(tmp_path / RUN_ID)
    view = PlainView(chronicle, folder, RunConfig(task="relu"), "offline: built-in rules, not a language model")
    for record in story():
        view.tell(record)
    view.finish()
    shown = capsys.readouterr().out
    for said in (
        "built-in rules, not a language model",
        "2.00x the reference [1.90, 2.10] (95 % interval; its lower end counts)",
        "in round 2: fuse the passes",
        f"lies in    {folder.best}",
        "attempts   1 measured, 1 wrong",
        "its rounds are used up",
        f"ksearch eval relu {folder.best}",
    ):
        assert said in shown
    assert "ksearch resume" not in shown


def test_a_run_that_another_process_leads_goes_on_when_its_view_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = PlainView(folded(story(None)), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "offline")
    view.finish(goes_on=True)
    shown = capsys.readouterr().out
    assert f"{RUN_ID}: going on" in shown
    assert "ksearch watch" in shown
    assert "ksearch resume" not in shown
    view.finish()
    shown = capsys.readouterr().out
    assert f"{RUN_ID}: stopped before its end" in shown
    assert "ksearch resume" in shown


@pytest.mark.parametrize("scorer", [None, "score.py"])
def test_how_to_check_names_the_run_where_a_file_of_its_task_is_gone(
    scorer: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, problem = RunFolder(tmp_path / RUN_ID), tmp_path / "problem.py"
    problem.touch()
    program = ProgramSettings(evaluator=scorer and str(tmp_path / scorer))
    view = PlainView(folded(story()), folder, RunConfig(task=str(problem), program=program), "offline")
    view.finish()
    named = capsys.readouterr().out
    assert (f"ksearch eval {problem} {folder.best}" in named) == (scorer is None)
    problem.unlink()
    view.finish()
    assert f"check it   ksearch eval {folder.path}\n" in capsys.readouterr().out


def test_on_a_terminal_the_summary_is_wrapped_under_its_labels_but_for_what_is_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain, "terminal_width", lambda: 40)
    lines = [
        "run        relu-20261120-142301: ended: its rounds are used up",
        "lies in    /a/path/that/is/longer/than/the/terminal/has/columns",
        "check it   ksearch eval relu /a/path/that/is/longer/than/that",
    ]
    assert plain.wrapped_lines(lines) == [
        "run        relu-20261120-142301: ended:",
        "           its rounds are used up",
        *lines[1:],
    ]


def test_a_run_that_was_killed_is_said_to_be_resumable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / RUN_ID)
    PlainView(folded(story(None)), folder, RunConfig(task="relu"), "offline").finish()
    assert f"ksearch resume {folder.path}" in capsys.readouterr().out


def test_commands_that_are_shown_can_be_typed_where_a_folder_has_a_space_in_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my kernels").mkdir()
    (tmp_path / "my kernels" / "relu.py").touch()
    task = str(tmp_path / "my kernels" / "relu.py")
    PlainView(folded(story()), RunFolder(tmp_path / "my runs" / "r 1"), RunConfig(task=task), "offline").finish()
    PlainView(folded(story(None)), RunFolder(tmp_path / "my runs" / "r 1"), RunConfig(task=task), "offline").finish()
    told = [line for line in capsys.readouterr().out.splitlines() if "ksearch" in line]
    best = str(tmp_path / "my runs" / "r 1" / "best")
    assert shlex.split(told[0])[2:] == ["ksearch", "eval", task, best]
    assert shlex.split(told[-1])[2:] == ["ksearch", "resume", str(tmp_path / "my runs" / "r 1")]


@pytest.mark.anyio
async def test_when_no_line_comes_it_is_said_what_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = PlainView(Run(), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "m", silence_s=0.01)
    for record in story()[:2]:
        view.tell(record)
    capsys.readouterr()
    said = ""
    async with anyio.create_task_group() as tasks:
        await tasks.start(view.show)
        with anyio.fail_after(5):
            while said.count("\n") < 2:
                await anyio.sleep(0.01)
                said += capsys.readouterr().err
        tasks.cancel_scope.cancel()
    assert set(said.splitlines()) == {"no news for 0.0 s; waited for: 1 answer of a model"}


def test_a_model_without_a_program_in_its_answers_is_told_where_they_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [record.body for record in story(None)[:3]]
    outcome = AttemptFinished(branch_id="b2", candidate_id=None, fate="unusable", outcome="no program in it")
    end = RunFinished(stopped_by="exhausted", rounds=0, best_id=None, credit=None, speedup=None)
    records = records_of([*told, decided(outcome), decided(RunStopping(stopped_by="exhausted"), end)])
    config = RunConfig(task="relu", model=ModelSettings(name="m", base_url="http://127.0.0.1:1/v1"))
    PlainView(folded(records), RunFolder(tmp_path / RUN_ID), config, "m").finish()
    hint = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("hint"))
    assert f"ksearch show {tmp_path / RUN_ID} n1 --answer" in hint


def test_json_events_are_one_object_per_line_and_end_with_run_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(tmp_path / RUN_ID)
    view = JsonView(Run(), folder)
    for record in story():
        view.tell(record)
    view.finish()
    printed = capsys.readouterr().out
    events = [json.loads(line) for line in printed.splitlines()]
    kinds = [event["kind"] for event in events]
    assert kinds.count("evaluation.finished") == 2
    assert kinds.count("run.finished") == 1
    assert set(events[-1]) == {"kind", "run", "rounds", "best", "untimed", "stopped_by"}
    assert (events[-1]["run"], events[-1]["rounds"], events[-1]["stopped_by"]) == (RUN_ID, 2, "rounds")
    assert events[-1]["best"]["speedup_interval"] == [1.9, 2.1]
    assert "secret" not in printed
    assert [event["candidate_id"] for event in events if event["kind"] == "candidate.written"][
        -1
    ] == KERNEL.candidate_id


def test_show_prints_the_tree_and_the_best_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, story())
    assert main(["show", RUN_ID, "--runs-dir", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "ended: its rounds are used up" in shown
    assert "└── n1 ★ fuse the passes" in shown
    assert "2.00x the reference [1.90, 2.10]" in shown


def test_show_reads_a_run_whose_last_line_was_torn_by_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = on_disk(tmp_path, story(None))
    with folder.journal.open("ab") as journal:
        journal.write(b'{"seq":99,"at"')
    assert main(["show", RUN_ID, "--runs-dir", str(tmp_path), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["state"], summary["rounds"], summary["fates"]) == ("stopped", 2, {"wrong": 1, "measured": 1})
    assert [node["node_id"] for node in summary["nodes"]] == ["n0", "n1"]


def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = on_disk(tmp_path, story())
    lines = folder.journal.read_bytes().splitlines(keepends=True)
    folder.journal.write_bytes(b"".join([*lines[:3], b"{}\n", *lines[4:]]))
    assert main(["show", RUN_ID, "--runs-dir", str(tmp_path)]) == 3
    assert "line 4" in capsys.readouterr().err


def test_best_prints_the_source_it_speaks_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, story())
    assert main(["best", RUN_ID, "--runs-dir", str(tmp_path), "--source"]) == 0
    assert capsys.readouterr().out == KERNEL.files[0].text


def test_best_ends_with_1_when_nothing_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, story()[:5])
    assert main(["best", RUN_ID, "--runs-dir", str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"run": RUN_ID, "best": None, "untimed": []}


def test_a_run_in_which_nothing_was_timed_names_its_correct_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk(tmp_path, untimed_story())
    assert main(["best", RUN_ID, "--runs-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "best       none: nothing was timed"
    assert said[1] == "correct    2 candidates are correct, not timed: an interpreter tells nothing about speed"
    assert said[2].endswith(f"/candidates/{KERNEL.candidate_id}")
    assert main(["show", RUN_ID, "--runs-dir", str(tmp_path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["untimed"]) == 2


def test_texts_are_shortened_at_their_end_and_put_on_one_line() -> None:
    assert shortened("a\n b", 10) == "a b"
    assert shortened("abcdefgh", 5) == "abcd…"


@pytest.mark.parametrize(("seconds", "said"), [(4.25, "4.2 s"), (192, "3 min 12 s"), (7500, "2 h 05 min")])
def test_durations_are_said_in_the_unit_that_fits(seconds: float, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(("repair", "said"), [(5, "window 3 (5 until correct)"), (3, "window 3"), (None, "window 3")])
def test_the_header_says_after_how_many_attempts_a_branch_ends(tmp_path: Path, repair: int | None, said: str) -> None:
    started = story()[0].body
    assert isinstance(started, RunStarted)
    settings = msgspec.structs.replace(started.settings, stagnation_window=3, repair_window=repair)
    view = PlainView(Run(), RunFolder(tmp_path / RUN_ID), RunConfig(task="relu"), "offline")
    (line,) = [
        line for line in view.header(msgspec.structs.replace(started, settings=settings)) if line.startswith("search ")
    ]
    assert f", {said}, seed" in line


def test_what_models_cost_is_said_where_it_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = story()
    spent = [SpendRecorded(role="coder", usage=Usage(calls=1), cost_usd=cost) for cost in (0.5, 0.33)]
    on_disk(tmp_path, told, "free")
    on_disk(tmp_path, [*told, *records_of([decided(*spent)], after=len(told))], "paid")
    assert main(["show", "free", "--runs-dir", str(tmp_path)]) == 0
    assert "model      2 calls, 20 tokens\n" in capsys.readouterr().out
    assert main(["show", "paid", "--runs-dir", str(tmp_path)]) == 0
    assert "model      4 calls, 20 tokens, $0.83 + 2 unpriced\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("records", "said"),
    [(story(None), f"go on      ksearch resume {RUN_ID}"), (story("interrupted"), "ksearch resume"), (story(), "")],
)
def test_a_run_that_was_cut_off_says_how_it_goes_on(
    records: list[Record], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk(tmp_path, records)
    assert main(["show", RUN_ID, "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert said in printed
    assert ("go on" in printed) == bool(said)


def test_a_run_that_rests_says_how_it_goes_on() -> None:
    paused = folded([*story(None), *records_of([decided(RunPaused(reason="lunch"))], after=len(story(None)))])
    assert way_on(paused, in_use=True, run="x") == "ksearch continue x"
    assert way_on(paused, in_use=False, run="x") == "ksearch resume x"
    assert way_on(folded(story(None)), in_use=True, run="x") == ""
