"""The lines of a search: whole where they are piped, fitted where a terminal has only so many columns."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from ksearch_async.runs.run import Best, Run
from ksearch_async.views.lines import STOP_WORDS, Narrator, best_lines, standing, state_line, workers_line
from ksearch_async.views.text import fitted
from messages.codec import Body, Record
from messages.events import CandidateEvaluated, JobsUnserved, RunStarted
from messages.facts import AttemptFinished, Decided, EditsApplied, NodeUpdated, RunContinued, RunPaused, StoppedBy
from messages.tasks import Target, TensorSpec
from tests.ksearch_async.stories import RUN_ID, story

LONG = "fuse the passes over a row, share the rows among threads, and vectorise the loops over the columns of each"

GO_ON = RunContinued()


def told(columns: int | None) -> list[str]:
    """Return the lines of the story, its action's title a long one."""
    chronicle = Run()
    narrator = Narrator(chronicle, lambda: columns)
    return [line for record in _retitled(story()) for line in narrator.tell(record)]


def _retitled(records: list[Record]) -> list[Record]:
    retitling = EditsApplied(
        job_id=f"{RUN_ID}-p1", changes=(NodeUpdated(node_id="n1", title=LONG),), summary="because " * 30
    )
    body = records[2].body
    assert isinstance(body, Decided)
    facts = (*body.facts, retitling)
    return [*records[:2], msgspec.structs.replace(records[2], body=Decided(cause=1, facts=facts)), *records[3:]]


def test_piped_lines_hold_the_whole_title_and_the_whole_outcome() -> None:
    lines = told(None)
    assert f"2/2  {LONG}  measured: 2.00x the reference [1.90, 2.10], 50.0 us  (new best)" in lines
    assert f"1/2  {LONG}  wrong: 17 of 64 elements are wrong  (no best yet)" in lines


def test_at_80_columns_the_title_gives_way_and_the_numbers_stay() -> None:
    lines = told(80)
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("2/2  fuse the passes over") for line in lines)
    assert any("…  2.00x [1.90, 2.10], 50.0 us  (new best)" in line for line in lines)


def test_where_columns_are_few_the_interval_stays_before_latency_and_title() -> None:
    assert "2/2  2.00x [1.90, 2.10]  (new best)" in told(40)
    assert "2/2  fuse th…  2.00x [1.90, 2.10], 50.0 us  (new best)" in told(56)
    for columns in range(40, 128):
        assert any("  2.00x [1.90, 2.10]" in line and line.endswith("  (new best)") for line in told(columns))


@pytest.mark.parametrize("columns", [8, 20, 40, 60, 100, 127, 128, 140, 300])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    assert all(len(line) <= columns for line in told(columns))


def test_an_answer_without_a_program_is_told_once_where_the_next_says_the_same() -> None:
    records = story()
    nothing = AttemptFinished(
        branch_id="b2", candidate_id=None, fate="unusable", outcome="unusable: there is no further variant"
    )
    other = msgspec.structs.replace(nothing, outcome="unusable: the answer is empty")
    branch_ended = Decided(cause=7, facts=(nothing, nothing, other, nothing))
    chronicle = Run()
    narrator = Narrator(chronicle)
    for record in records[:7]:
        list(narrator.tell(record))
    lines = list(narrator.tell(msgspec.structs.replace(records[6], body=branch_ended)))
    assert [line.partition("unusable: ")[2].partition("  (")[0] for line in lines] == [
        "there is no further variant",
        "the answer is empty",
        "there is no further variant",
    ]


def test_a_coder_that_sees_nothing_further_is_counted_and_not_told() -> None:
    records = story()
    nothing = AttemptFinished(branch_id="b2", candidate_id=None, fate="declined", outcome="declined: all was tried")
    chronicle = Run()
    narrator = Narrator(chronicle)
    for record in records[:7]:
        list(narrator.tell(record))
    decided = msgspec.structs.replace(records[6], body=Decided(cause=7, facts=(nothing,)))
    assert list(narrator.tell(decided)) == []
    assert chronicle.fates["declined"] == 1


def test_a_line_that_is_cut_says_so_and_keeps_its_indent() -> None:
    assert fitted("  abcdef", 6) == "  abc…"
    assert fitted("  abc", 6) == "  abc"


def _said(body: Body, after: int = 5) -> tuple[list[str], Run]:
    """Return the lines of one more record behind the story's first ones."""
    records, chronicle = story(), Run()
    narrator = Narrator(chronicle)
    for record in records[:after]:
        list(narrator.tell(record))
    return list(narrator.tell(msgspec.structs.replace(records[after], body=body))), chronicle


def test_a_pause_is_told_with_its_reason_and_is_no_time_of_the_run() -> None:
    lines, chronicle = _said(Decided(cause=5, facts=(RunPaused(reason="the GPU is needed"),)))
    assert lines == ["  paused: what is in flight is finished, nothing new begins (the GPU is needed)"]
    assert state_line(chronicle, in_use=True) == standing(chronicle, in_use=True) == "paused"
    before = chronicle.elapsed_s
    later = msgspec.structs.replace(story()[5], at="2030-01-01T00:00:00+00:00", body=Decided(cause=6, facts=(GO_ON,)))
    assert list(Narrator(chronicle).tell(later)) == ["  goes on after a pause"]
    assert chronicle.elapsed_s == before
    assert standing(chronicle, in_use=True) == "running"


def test_jobs_that_nobody_does_are_told_with_what_to_start() -> None:
    unserved = JobsUnserved(
        kind="evaluate", queue="q", role="evaluator", waiting_s=30.0, detail="none is there; start: ksearch evaluator"
    )
    assert _said(unserved)[0] == ["  waiting for an evaluator: none is there; start: ksearch evaluator"]


def test_who_judged_is_told_where_several_do() -> None:
    records, chronicle = [_with_worker(record, str(record.seq)) for record in story()], Run()
    lines = [line for record in records for line in Narrator(chronicle).tell(record)]
    first, second = (line for line in lines if " measured: " in line or " wrong: " in line)
    assert first.endswith("(no best yet)")  # until then there was one
    assert second.endswith("(new best)  evaluator-12")
    assert workers_line(chronicle) == "2 evaluators"


def _with_worker(record: Record, name: str) -> Record:
    if not isinstance(record.body, CandidateEvaluated):
        return record
    return msgspec.structs.replace(record, body=msgspec.structs.replace(record.body, worker=f"evaluator-{name}"))


def test_on_a_terminal_each_part_of_what_is_missing_has_its_line() -> None:
    detail = "needed is tier large; at hand: 2 coders of tier default; start one with ksearch coder --tier large"
    unserved = JobsUnserved(kind="write", queue="q", role="coder", waiting_s=30.0, detail=detail)
    assert list(Narrator(Run(), lambda: 80).event_lines(unserved)) == [
        "  waiting for a coder: needed is tier large",
        "    at hand: 2 coders of tier default",
        "    start one with ksearch coder --tier large",
    ]


def test_on_a_gpu_the_best_is_told_with_its_share_of_the_roofline() -> None:
    h200 = Target(arch="sm_90", march="", toolchain="t", device="NVIDIA H200")
    matrix = TensorSpec(name="x", role="input", shape=(15000, 4096), dtype="float32")
    chronicle = Run()
    for record in story():
        body = record.body
        if isinstance(body, RunStarted):
            description = msgspec.structs.replace(body.description, tensors=(matrix,))
            body = msgspec.structs.replace(body, target=h200, description=description)
        chronicle.fold(msgspec.structs.replace(record, body=body))
    best = chronicle.best("best")
    assert isinstance(best, Best)
    assert best.roofline_limited_by == "memory"
    assert best.roofline_us == pytest.approx(51.2)
    assert "50.0 us, the reference 100.0 us, 102 % of the roofline (51.20 us, memory)" in "\n".join(best_lines(best))


def test_on_a_cpu_nothing_is_said_of_a_roofline() -> None:
    chronicle = Run()
    for record in story():
        chronicle.fold(record)
    assert "roofline" not in "\n".join(best_lines(chronicle.best("best")))


def test_every_end_of_a_run_has_words() -> None:
    assert set(STOP_WORDS) == set(get_args(StoppedBy))
