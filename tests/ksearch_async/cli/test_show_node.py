"""`ksearch show RUN NODE`: what was tried for a node, and what was asked and answered."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ksearch_async.cli import main
from messages.codec import Record
from messages.events import CandidateWritten
from tests.ksearch_async.stories import KERNEL, RUN_ID, on_disk, story


def shown(folder: Path, *arguments: str) -> int:
    return main(["show", RUN_ID, *arguments, "--runs-dir", str(folder)])


def told_apart(records: list[Record]) -> list[Record]:
    """Give each answer a prompt and an answer of its own, and the last one a note."""
    found, number = [], 0
    for record in records:
        if isinstance(record.body, CandidateWritten):
            number += 1
            own = {"prompt": f"prompt {number}", "answer": f"answer {number}\n```", "notes": (f"note {number}",)}
            record = msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, **own))  # noqa: PLW2901
        found.append(record)
    return found


def test_a_nodes_attempts_are_listed_with_what_came_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, told_apart(story()))
    assert shown(tmp_path, "n1") == 0
    printed = capsys.readouterr().out
    assert "node       n1: fuse the passes" in printed
    assert "1. apply, round 1, candidate" in printed
    assert "17 of 64 elements are wrong" in printed
    assert f"2. apply, round 2, candidate {KERNEL.candidate_id[:8]}: measured: 2.00x" in printed
    assert "note: note 2" in printed
    assert f"ksearch show {RUN_ID} n1 --attempt 2 --prompt" in printed


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--prompt",), "prompt 2\n"),
        (("--answer",), "answer 2\n```\n"),
        (("--prompt", "--attempt", "1"), "prompt 1\n"),
        (("--prompt", "--answer", "--attempt", "1"), "prompt 1\n\nanswer 1\n```\n"),
    ],
)
def test_what_was_asked_and_answered_is_printed_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], said: str
) -> None:
    on_disk(tmp_path, told_apart(story()))
    assert shown(tmp_path, "n1", *flags) == 0
    assert capsys.readouterr().out == said


def test_a_script_gets_everything_of_a_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, told_apart(story()))
    assert shown(tmp_path, "n1", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["node"]["title"] == "fuse the passes"
    assert [(one["number"], one["fate"], one["round"]) for one in told["attempts"]] == [
        (1, "wrong", 1),
        (2, "measured", 2),
    ]
    assert told["attempts"][1]["answer"] == "answer 2\n```"


def test_an_answer_whose_outcome_is_not_known_yet_is_under_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = told_apart(story(None))
    last = max(place for place, record in enumerate(records) if isinstance(record.body, CandidateWritten))
    on_disk(tmp_path, records[: last + 1])
    assert shown(tmp_path, "n1") == 0
    assert "under way" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("n9",), "has no node 'n9'"),
        (("n1", "--attempt", "7"), "'n1' has 2 attempts, and no number 7"),
        (("n0", "--prompt"), "no coder has answered for 'n0'"),
        (("--prompt",), "are about a node"),
    ],
)
def test_what_is_not_there_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    on_disk(tmp_path, story())
    assert shown(tmp_path, *arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
