"""`new-task`: a task of one's own that works as it is written."""

from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest
from msgspec import structs

from actors.llm.chat import ChatModel
from evaluators.tasks.own.document import Draft
from evaluators.tasks.own.drafts import draft_of, write_draft
from ksearch_async.cli import main
from ksearch_async.cli.new_task import ask_for_yes
from ksearch_async.evaluation.drafts import read_answer
from tests.ksearch_async.answering import answering
from tests.ksearch_async.drafts import NAME, REFERENCE, answer


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


@pytest.mark.long
def test_a_new_task_can_be_checked_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-task", "mine", "--in", "tasks"]) == 0
    written = capsys.readouterr()
    assert written.out == "tasks/mine\n"
    assert "ksearch check-task tasks/mine" in written.err
    assert main(["check-task", "tasks/mine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["fitness"], told["task"]) == ("fit", "mine")
    assert told["itself"]["verdict"] in {"measured", "unstable", "outpaced"}


def test_a_task_with_a_bundled_ones_name_is_told_by_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-task", "softmax_rows"]) == 0
    assert "ksearch check-task ./softmax_rows" in capsys.readouterr().err
    assert "`ksearch run ./softmax_rows`" in (tmp_path / "softmax_rows" / "task.toml").read_text()


def test_an_existing_folder_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    assert main(["new-task", "mine", "--in", str(tmp_path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_candidates_in_a_language_that_the_task_leaves_out_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["new-task", "mine"])
    document = tmp_path / "mine" / "task.toml"
    document.write_text(document.read_text().replace("# languages =", "languages ="))
    (tmp_path / "kernel.cpp").write_text("int x;\n")
    capsys.readouterr()
    assert main(["eval", "mine", "kernel.cpp"]) == 2
    told = capsys.readouterr().err
    assert "error: task 'mine' is for candidates in triton, cuda, not in cpp" in told
    assert main(["run", "mine", "--max-rounds", "1"]) == 2
    assert "hint: use --language triton" in capsys.readouterr().err


@pytest.mark.long
def test_a_draft_is_checked_and_searched_on_after_a_yes_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with answering("Well.", answer()) as served:
        drafting = [
            "new-task",
            "--from",
            "batched matmul, bias and GELU",
            "--model",
            "drafter",
            "--base-url",
            served.url,
        ]
        assert main([*drafting, "--json"]) == 0
        written = capsys.readouterr()
        assert main([*drafting[:1], NAME, *drafting[1:]]) == 2
        assert "is there already" in capsys.readouterr().err
        assert len(served.asked) == 2
    told = json.loads(written.out)
    assert (told["folder"], told["accepted"], told["questions"]) == (NAME, False, 2)
    assert told["draft"] == {"model": "drafter", "text": "batched matmul, bias and GELU", "accepted": False}
    assert told["check"]["fitness"] == "fit"
    assert "asked for again: there are 0 fenced blocks of toml" in written.err
    assert "ksearch check-task bmm_bias_gelu --accept" in written.err
    for command in (["run", NAME, "--max-rounds", "1"], ["run", f"{NAME}:small", "--dry-run"]):
        assert main(command) == 2
        assert "drafted by drafter, and is not accepted yet" in capsys.readouterr().err
    assert main(["check-task", NAME, "--accept", "--json"]) == 0
    accepted = capsys.readouterr()
    assert json.loads(accepted.out)["accepted"] is True
    assert "accepted: ksearch run bmm_bias_gelu" in accepted.err
    assert draft_of(NAME) is None
    assert main(["check-task", NAME, "--accept"]) == 2


def test_hostile_drafts_are_asked_for_again_and_never_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "was-run"
    hostile = REFERENCE.replace("import torch\n", f"import torch\nOPENED = open({str(mark)!r}, 'w')\n", 1)
    with answering(answer(reference=hostile)) as served:
        assert main(["new-task", "--from", "a product", "--model", "drafter", "--base-url", served.url]) == 3
    said = capsys.readouterr().err
    assert "drafted no task in 3 answers" in said
    assert "'open' is not defined" in said
    assert not list(tmp_path.iterdir())


def test_without_a_model_nothing_is_drafted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KSEARCH_MODEL", raising=False)
    assert main(["new-task", "--from", "softmax over rows"]) == 2
    said = capsys.readouterr().err
    assert "the built-in rules cannot draft" in said
    assert "hint: name a model: --model NAME" in said


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no name is given"),
        (["mine", "--model", "m"], "--model is for --from"),
        (["--from", "", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"], "--from is empty"),
    ],
)
def test_arguments_that_say_too_little_or_too_much_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-task", *arguments]) == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "is_yes"), [("y", True), ("Yes", True), ("", False), ("n", False), ("maybe", False)])
def test_a_person_at_a_terminal_is_asked(
    typed: str, is_yes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document, reference = read_answer(answer())
    folder = write_draft(tmp_path, structs.replace(document, draft=Draft(model="m", text="t")), reference)
    keyboard, terminal = pty.openpty()
    with (
        os.fdopen(keyboard, "wb", buffering=0) as person,
        os.fdopen(terminal) as reading,
        os.fdopen(os.dup(terminal), "w") as writing,
    ):
        monkeypatch.setattr("sys.stdin", reading)
        monkeypatch.setattr("sys.stderr", writing)
        person.write(f"{typed}\n".encode())
        assert ask_for_yes(folder) is is_yes
        monkeypatch.undo()
    assert (draft_of(str(folder)) is None) is is_yes


def test_nobody_is_asked_without_a_terminal(tmp_path: Path) -> None:
    assert ask_for_yes(tmp_path) is False
