"""`ksearch export` at the shell: what is written, and what is refused before anything is."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from evaluators.tasks import load_task
from evaluators.tasks.flashinfer.trace_set import parse_solution
from ksearch_async.cli import main
from ksearch_async.evaluation.candidates import read_kernel
from ksearch_async.settings.run_config import RunConfig
from messages.codec import Record, encode_line
from messages.events import RunStarted
from messages.facts import ConfirmationOwed, Decided, RunFinished, RunStopping
from messages.tasks import TensorSpec
from tests.evaluators.tasks.flashinfer import sets
from tests.evaluators.words import RIGHT, SMALL_TASK, after
from tests.ksearch_async.stories import (
    FASTER,
    FASTER_KERNEL,
    KERNEL,
    RUN_ID,
    SLOPPY,
    TASK,
    attempt,
    decided,
    records_of,
    story,
)

TENSORS = (
    TensorSpec(name="x", role="input", shape=(2, 3), dtype="float32"),
    TensorSpec(name="norm.weight", role="parameter", shape=(3,), dtype="float32"),
    TensorSpec(name="output0", role="output", shape=(2, 3), dtype="float32"),
    TensorSpec(name="output1", role="output", shape=(2,), dtype="int64"),
)


def keep(folder: Path, records: list[Record], *, source: str = "kernelbench") -> None:
    """Write the journal of a run whose task has tensors."""
    started = records[0].body
    assert isinstance(started, RunStarted)
    task = replace(TASK, source=source)
    body = replace(started, task=task, description=replace(started.description, tensors=TENSORS))
    run = folder / "runs" / RUN_ID
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_bytes(b"".join(map(encode_line, [replace(records[0], body=body), *records[1:]])))


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.py").write_text(SMALL_TASK.text)
    (tmp_path / "right.cpp").write_text(RIGHT)
    (tmp_path / "wrong.cpp").write_text(after("y[3] = 7;"))
    (tmp_path / "there.py").write_text("mine")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_runs_best_is_written_with_where_it_comes_from_and_the_references_arguments(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(workplace, story())
    assert main(["export", "latest", "-o", "out/fast.py", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["path"], told["run"], told["candidate_id"]) == ("out/fast.py", RUN_ID, KERNEL.candidate_id)
    tree = ast.parse((workplace / "out" / "fast.py").read_bytes())
    header = ast.get_docstring(tree) or ""
    assert f"candidate {KERNEL.candidate_id}, from run {RUN_ID}, round 2: fuse the passes" in header
    assert "2.00x the reference (eager PyTorch) [1.90, 2.10]" in header
    forward = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "forward")
    assert [argument.arg for argument in forward.args.args] == ["x", "norm_weight"]
    assert ast.unparse(forward.returns or ast.Pass()) == "tuple[torch.Tensor, torch.Tensor]"


def interrupted_story() -> list[Record]:
    """Return a run that Ctrl-C ended before its faster candidate was confirmed."""
    told = story(None)
    *before, judged = attempt(9, FASTER_KERNEL, FASTER)
    assert isinstance(judged, Decided)
    owed = ConfirmationOwed(
        candidate_id=FASTER_KERNEL.candidate_id, node_id="n1", artifact_id="a", round=3, credit=2.4, speedup=2.5
    )
    end = RunFinished(stopped_by="interrupted", rounds=3, best_id=KERNEL.candidate_id, credit=1.9, speedup=2.0)
    last = decided(judged.facts[0], owed, RunStopping(stopped_by="interrupted"), end)
    return told + records_of([*before, last], after=len(told))


def test_that_a_faster_candidate_waits_to_be_confirmed_is_said_with_how_to_have_it_confirmed(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(workplace, interrupted_story())
    assert main(["export", "latest", "-o", "best.py"]) == 0
    printed = capsys.readouterr()
    assert KERNEL.candidate_id[:8] in printed.out
    assert "waits" not in printed.out
    assert "waits to be confirmed: round 3, 2.50x, measured once; it was not exported" in printed.err
    assert f"hint: ksearch resume {RUN_ID} has it measured once more" in printed.err
    assert main(["export", "latest", "-o", "best2.py", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["waiting"] == {
        "candidate_id": FASTER_KERNEL.candidate_id,
        "round": 3,
        "screen_speedup": 2.5,
        "way_on": f"ksearch resume {RUN_ID}",
    }


def test_nothing_is_said_of_waiting_where_nothing_waits_or_another_candidate_was_named(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(workplace, interrupted_story())
    assert main(["export", "latest", "--candidate", "2", "-o", "named.py", "--json"]) == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out)["waiting"], printed.err) == (None, "")
    (workplace / "runs" / RUN_ID / "journal.jsonl").unlink()
    (workplace / "runs" / RUN_ID).rmdir()
    keep(workplace, story())
    assert main(["export", "latest", "-o", "sure.py"]) == 0
    assert capsys.readouterr().err == ""


def test_a_file_that_is_there_is_replaced_when_asked(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(workplace, story())
    assert main(["export", "latest", "-o", "there.py"]) == 2
    assert "hint: --force replaces it" in capsys.readouterr().err
    assert (workplace / "there.py").read_text() == "mine"
    assert main(["export", "latest", "-o", "there.py", "--force"]) == 0
    assert KERNEL.candidate_id in (workplace / "there.py").read_text()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["latest", "--candidate", "9"], "the run has no round 9"),
        (["latest", "--candidate", "abcdef"], "the run has no candidate 'abcdef'"),
        (["latest", "--candidate", "n0"], "'n0' is the reference"),
        (["latest", "--candidate", SLOPPY.candidate_id], "was not measured: wrong: "),
        (["no-such-run"], "no run 'no-such-run'"),
        (["latest", "--tolerance", "kernelbench"], "as the run evaluated it"),
        (["right.cpp", "--task", "small.py", "--candidate", "3"], "--candidate is for runs"),
        (["right.cpp"], "its task is not said"),
        (["right.cpp", "--task", "nothing"], "unknown problem 'nothing'"),
        (["none.cpp", "--task", "small.py"], "cannot read source 'none.cpp'"),
    ],
)
def test_what_cannot_be_exported_is_bad_input(
    workplace: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(workplace, story())
    assert main(["export", *words, "-o", "new.py"]) == 2
    assert complaint in capsys.readouterr().err
    assert not list(workplace.glob("*new.py*"))


def test_a_run_without_a_best_has_nothing_to_export(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(workplace, story()[:1])
    assert main(["export", "latest", "-o", "new.py"]) == 2
    assert "error: the run has no candidate yet" in capsys.readouterr().err


def test_a_program_is_no_kernel(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(workplace, story(), source="program")
    assert main(["export", "latest", "-o", "new.py"]) == 2
    assert "is a plain Python program, not a kernel" in capsys.readouterr().err


@pytest.mark.parametrize(("place", "complaint"), [(".", "is a folder"), ("/proc/none/new.py", "cannot write")])
def test_a_place_that_cannot_be_written_is_said_before_anything_is_measured(
    workplace: Path, place: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "right.cpp", "--task", "small.py", "-o", place]) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert "building" not in err


@pytest.mark.usefixtures("workplace")
def test_a_source_that_is_wrong_is_told_and_not_written(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "wrong.cpp", "--task", "small.py", "-o", "new.py"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("verdict    wrong\n")
    assert "nothing was written" in err
    assert not (workplace / "new.py").exists()


def keep_flashinfer(workplace: Path) -> Path:
    """Keep a run whose task is of FlashInfer-Bench, and return its set."""
    task_set = sets.written(workplace)
    named = f"flashinfer:{task_set}#{sets.NAME}:one"
    records = story()
    started = records[0].body
    assert isinstance(started, RunStarted)
    first = replace(records[0], body=replace(started, task=load_task(named)))
    run = workplace / "runs" / RUN_ID
    run.mkdir(parents=True)
    (run / "journal.jsonl").write_bytes(b"".join(map(encode_line, [first, *records[1:]])))
    (run / "config.json").write_bytes(msgspec.json.encode(RunConfig(task=named)))
    return task_set


def test_a_runs_best_is_a_solution_that_upstreams_tools_build_and_that_is_read_again(workplace: Path) -> None:
    keep_flashinfer(workplace)
    assert main(["export", "latest", "-o", "solution.json", "--form", "flashinfer"]) == 0
    solution = parse_solution((workplace / "solution.json").read_bytes(), "solution.json")
    assert (solution.definition, solution.spec.language, solution.author) == (sets.NAME, "cpp", "ksearch")
    assert "2.00x the reference" in (solution.description or "")
    assert any("TVM_FFI_DLL_EXPORT_TYPED_FUNC(run" in source.content for source in solution.sources)
    task = load_task(f"flashinfer:{workplace / 'set'}#{sets.NAME}:one")
    again = read_kernel(workplace / "solution.json", None, task)
    assert (again.language, again.entry_point) == ("cpp", "run")
    assert {file.text for file in KERNEL.files} < {file.text for file in again.files}


def test_a_solution_needs_its_definition(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_flashinfer(workplace).rename(workplace / "elsewhere")
    assert main(["export", "latest", "-o", "solution.json", "--form", "flashinfer"]) == 2
    said = capsys.readouterr().err
    assert "FIB_DATASET_PATH, or --task, says where it is" in said
    assert not (workplace / "solution.json").exists()


def test_only_tasks_of_flashinfer_have_solutions(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(workplace, story())
    (workplace / "runs" / RUN_ID / "config.json").write_bytes(msgspec.json.encode(RunConfig(task="small.py")))
    assert main(["export", "latest", "-o", "solution.json", "--form", "flashinfer"]) == 2
    assert "is no task of FlashInfer-Bench" in capsys.readouterr().err
