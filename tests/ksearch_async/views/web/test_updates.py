"""Updates say what changed, and nothing is missing in them: whoever keeps the latest of each knows the run."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import msgspec
import pytest

from actors.bus.journal import read_journal
from ksearch_async.runs.run import Mark, Run
from ksearch_async.views.lines import Narrator
from ksearch_async.views.web.updates import Folding, JobView, NodeView, Update, node_view, updates_of
from messages.codec import Record
from messages.facts import LossNoted, NodePruned, RunPaused
from messages.steering import NodeForbidden
from tests.ksearch_async.journals import real_journal
from tests.ksearch_async.stories import (
    FAST,
    FASTER_KERNEL,
    KERNEL,
    SLOPPY,
    attempt,
    decided,
    inserted,
    records_of,
    story,
)

pytestmark = pytest.mark.anyio
JOURNALS = Path(__file__).parents[4] / "docs" / "benchmarks" / "journals"


class Kept:
    """What a lens keeps of the updates."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeView] = {}
        self.jobs: dict[str, JobView] = {}
        self.marks: list[Mark] = []

    def take(self, update: Update) -> None:
        self.nodes |= {node.node_id: node for node in update.nodes}
        self.jobs |= {job.job_id: job for job in update.jobs}
        self.marks.extend(update.marks)


def after(records: list[Record], *facts: object) -> list[Record]:
    record = records[-1]
    extra = msgspec.structs.replace(record, seq=record.seq + 1, msg_id="extra", body=decided(*facts))  # type: ignore[arg-type]
    return [*records, extra]


async def test_after_each_record_the_kept_nodes_and_jobs_are_those_of_the_state(tmp_path: Path) -> None:
    folding, chronicle, kept = Folding(), Run(), Kept()
    for record in await real_journal(tmp_path):
        chronicle.fold(record)
        kept.take(folding.take(record))
        assert kept.nodes == {node_id: node_view(node) for node_id, node in chronicle.state.nodes.items()}
        open_jobs = {job.job_id for job in kept.jobs.values() if job.ended_s is None}
        assert open_jobs <= set(chronicle.state.jobs)
    assert chronicle.finished is not None
    assert all(job.ended_s is not None and job.result for job in kept.jobs.values())


@pytest.mark.parametrize("name", [path.name for path in sorted(JOURNALS.glob("*.gz"))])
def test_a_run_on_gpus_ends_with_the_nodes_and_the_best_of_its_journal(tmp_path: Path, name: str) -> None:
    path = tmp_path / "journal.jsonl"
    with gzip.open(JOURNALS / name) as packed, path.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    folding, kept = Folding(), Kept()
    for record in read_journal(path):
        kept.take(folding.take(record))
    state = folding.run.state
    assert kept.nodes == {node_id: node_view(node) for node_id, node in state.nodes.items()}
    assert state.incumbent is not None
    assert (kept.marks[-1].candidate_id, kept.marks[-1].credit) == (
        state.incumbent.candidate_id,
        state.incumbent.credit,
    )
    assert [mark.credit for mark in kept.marks] == sorted(mark.credit for mark in kept.marks)
    assert all(job.began_s <= (job.ended_s or job.began_s) for job in kept.jobs.values())


def test_a_story_is_told_with_its_figures() -> None:
    updates = list(updates_of(story()))
    head = updates[0].head
    assert head is not None
    assert (head.task, head.language, head.max_rounds, head.device) == ("relu", "cpp", 2, "AMD EPYC")
    attempts = [attempt for update in updates for attempt in update.attempts]
    assert [(one.node_id, one.fate, one.round, one.candidate_id) for one in attempts] == [
        ("n1", "wrong", 1, SLOPPY.candidate_id),
        ("n1", "measured", 2, KERNEL.candidate_id),
    ]
    (mark,) = [mark for update in updates for mark in update.marks]
    assert (mark.speedup, mark.credit, mark.speedup_high, mark.round) == (2.0, 1.9, 2.1, 2)
    assert (mark.latency_us, mark.reference_latency_us) == (50.0, 100.0)
    totals = updates[-1].totals
    assert (totals.standing, totals.stopped_by, totals.rounds) == ("finished", "rounds", 2)
    assert totals.fates == {"wrong": 1, "measured": 1}
    assert totals.best_id == KERNEL.candidate_id


def test_a_new_best_is_told_with_the_baseline_it_was_timed_beside() -> None:
    beside = msgspec.structs.replace(FAST, baseline="torch.compile", baseline_latency_us=80.0, speedup_vs_baseline=1.6)
    records = story(stopped_by=None)
    records = [*records, *records_of(attempt(9, FASTER_KERNEL, beside), after=len(records))]
    mark = [mark for update in updates_of(records) for mark in update.marks][-1]
    assert (mark.baseline, mark.baseline_latency_us, mark.speedup_vs_baseline) == ("torch.compile", 80.0, 1.6)


def test_a_job_is_told_when_it_is_asked_for_and_when_it_is_answered() -> None:
    updates = list(updates_of(story()))
    jobs = [job for update in updates for job in update.jobs]
    written = [job for job in jobs if job.verb == "writing"]
    assert [(job.node_id, job.ended_s is None, job.result) for job in written[:2]] == [
        ("n1", True, ""),
        ("n1", False, "written"),
    ]
    assert written[1].busy_s == 0.1
    assert {job.result for job in jobs if job.verb == "evaluating" and job.ended_s is not None} == {"wrong", "measured"}


def test_what_is_pruned_or_forbidden_is_told_with_all_below_it() -> None:
    records = after(story(stopped_by=None), inserted("n2", "n1", "tile"), inserted("n3", "n2", "tile more"))
    folding = Folding()
    for record in after(records, NodeForbidden(node_id="n1", reason="no")):
        last = folding.take(record)
    assert {node.node_id for node in last.nodes if node.forbidden} == {"n1", "n2", "n3"}
    (pruned,) = [folding.take(after(records, NodePruned(node_id="n3", reason="weak"))[-1])]
    assert [(node.node_id, node.state) for node in pruned.nodes] == [("n3", "pruned")]


def test_lines_have_the_kind_of_what_they_tell() -> None:
    notes = [note for update in list(updates_of(story())) for note in update.notes]
    assert [(note.kind, note.node_id) for note in notes if note.kind == "attempt"] == [
        ("attempt", "n1"),
        ("attempt", "n1"),
    ]
    assert {note.kind for note in notes} >= {"attempt", "world_model", "course"}
    lost = list(updates_of(after(story(stopped_by=None), LossNoted(job_id="j", error="no compiler"))))[-1]
    assert [(note.kind, "no compiler" in note.text) for note in lost.notes] == [("loss", True)]


def test_a_pause_is_told_and_a_head_is_told_once() -> None:
    updates = list(updates_of(after(story(stopped_by=None), RunPaused(reason="lunch"))))
    assert updates[-1].totals.standing == "paused"
    assert sum(update.head is not None for update in updates) <= 3  # as asked for, as opened, with the tree's summary


def test_an_update_is_small_json_and_comes_back_whole() -> None:
    for update in list(updates_of(story())):
        packed = msgspec.json.encode(update)
        assert msgspec.json.decode(packed, type=Update) == update
        assert b"secret of a long" not in packed


async def test_the_open_nodes_that_a_note_counts_are_those_of_the_tree(tmp_path: Path) -> None:
    folding, counting = Folding(), Folding()
    counting._narrator = Narrator(counting.run)
    records = await real_journal(tmp_path)
    notes = [[note.text for note in folding.take(record).notes] for record in records]
    assert notes == [[note.text for note in counting.take(record).notes] for record in records]
    assert sum("world model: " in text for texts in notes for text in texts) > 3
