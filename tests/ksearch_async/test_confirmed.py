"""What people see of confirmations: while they go on, at the end, and from the journal."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from ksearch_async.cli import main
from ksearch_async.runs.candidates import Versions
from ksearch_async.runs.run import Best, Run
from ksearch_async.views.compare import compared, entrant_of, rows_of
from ksearch_async.views.lines import Narrator, confirmations_line, result_lines
from ksearch_async.views.live import frame_lines
from ksearch_async.views.progress import Progress
from ksearch_async.views.report.markup import joined
from ksearch_async.views.report.page import attempts, dossier_of, kernel, result_words
from ksearch_async.views.web.updates import updates_of
from messages.codec import Body, Record
from messages.events import Event, StopRequested
from messages.facts import BuildRequested, Decided, EvaluationRequested, Fact, WriteRequested
from messages.settings import Budget, SearchSettings
from messages.verdicts import Interval, Outpaced, Unstable, Verdict, Wrong
from tests.actors.planner.core.world import RUN, World, built, candidate, evaluated, inserts, measured, written
from tests.ksearch_async.stories import on_disk, records_of

SETTINGS = SearchSettings(branches=1, stagnation_window=9, budget=Budget(max_rounds=3))
SLOW = Outpaced(reason="about 0.4x after 4 pairs", speedup_interval=Interval(low=0.38, high=0.42))


class Told(World):
    """A search whose events and decisions are kept as records."""

    def __init__(self) -> None:
        self.bodies: list[Body] = []
        super().__init__(SETTINGS)
        self.propose(inserts(1, prefix="fuse"))

    def give(self, event: Event) -> tuple[Fact, ...]:
        facts = super().give(event)
        self.bodies.append(event)
        if facts:
            self.bodies.append(Decided(cause=len(self.bodies), facts=facts))
        return facts

    def write(self, text: str, verdict: Verdict, lease_s: float, *, stopped: bool = False) -> None:
        """Carry an attempt through to its verdict; meanwhile the run may be stopped."""
        (write,) = self.requests(WriteRequested)
        self.give(msgspec.structs.replace(written(write.job_id, text), branch_id=write.branch_id))
        self.give(built(self.requests(BuildRequested)[0].job_id, candidate(text).candidate_id))
        if stopped:
            self.give(StopRequested(reason="test"))
        (request,) = self.requests(EvaluationRequested)
        self.give(evaluated(request.job_id, candidate(text).candidate_id, verdict, lease_s=lease_s))

    @property
    def records(self) -> list[Record]:
        return records_of(self.bodies)


def lucky_run() -> Told:
    """Return a run of three rounds: one is confirmed a bit lower, one is wrong the second time, one is outpaced."""
    told = Told()
    told.write("0", measured(2.0, width=0.2), 10.0)
    told.confirm("0", measured(1.8, width=0.1), lease_s=5.0)
    told.write("1", measured(2.5, width=0.2), 10.0)
    told.confirm("1", Wrong(reason="1 of 4 elements differ"), lease_s=1.0)
    told.write("2", SLOW, 1.0)
    assert told.state.finished
    return told


def folded(records: list[Record]) -> Run:
    chronicle = Run()
    for record in records:
        chronicle.fold(record)
    return chronicle


def test_screenings_are_told_as_to_be_confirmed_and_confirmations_with_what_both_measurements_said() -> None:
    narrator = Narrator(Run())
    lines = [" ".join(line.split()) for record in lucky_run().records for line in narrator.tell(record)]
    said = [line for line in lines if "confirmed" in line]
    assert said == [
        "1/3 fuse 0 measured: 2.10x the reference [2.00, 2.20], 500.0 us (new best, to be confirmed)",
        "round 1 confirmed: 1.85x the reference [1.80, 1.90], 555.6 us (screening said 2.10x; the best)",
        "2/3 fuse 0 measured: 2.60x the reference [2.50, 2.70], 400.0 us (new best, to be confirmed)",
        "round 2 not confirmed: wrong: 1 of 4 elements differ (screening said 2.60x)",
    ]


def test_the_best_is_what_its_confirmation_said() -> None:
    chronicle = folded(lucky_run().records)
    best = chronicle.best("best")
    assert isinstance(best, Best)
    assert (best.speedup_vs_reference, best.screen_speedup) == (1.85, 2.1)
    assert best.speedup_interval == pytest.approx((1.8, 1.9))
    assert result_lines(chronicle, "best", "candidates")[0] == (
        "best       1.85x the reference [1.80, 1.90] (95 % interval; its lower end counts), "
        "confirmed (screening said 2.10x)"
    )


def test_the_summary_says_how_far_confirmations_moved_what_was_said() -> None:
    assert confirmations_line(folded(lucky_run().records)) == (
        "1 of 2 candidates, credit on average 10.0 % below its screening's, 1 wrong, 22 % of the time for timing"
    )
    assert confirmations_line(Run()) == ""


def test_a_run_that_was_stopped_before_says_that_nothing_is_confirmed() -> None:
    told = Told()
    told.write("0", measured(2.0, width=0.2), 10.0, stopped=True)
    lines = result_lines(folded(told.records), "best", "candidates")
    assert lines == [
        "best       none yet: nothing that was timed has been confirmed",
        "waiting    1 candidate is provisional: measured once, up to 2.10x (round 1), not confirmed",
    ]


def test_a_run_whose_confirmations_told_nothing_does_not_say_that_nothing_was_correct() -> None:
    told = Told()
    for text in "012":
        told.write(text, measured(2.0, width=0.2), 10.0)
        told.confirm(
            text, Unstable(reason="the host is busy", speedup_interval=Interval(low=0.5, high=4.0)), lease_s=5.0
        )
    assert told.state.finished
    assert result_lines(folded(told.records), "best", "candidates") == [
        "best       none: no timed candidate was confirmed"
    ]


def test_the_live_view_says_that_nothing_is_confirmed_before_it_has_a_curve() -> None:
    told = Told()
    assert "nothing to draw yet" in frame(told)
    told.write("0", measured(2.0, width=0.2), 10.0)
    assert "nothing is confirmed yet" in frame(told)
    told.confirm("0", measured(1.8, width=0.1), lease_s=5.0)
    assert "nothing" not in frame(told)


def frame(told: Told) -> str:
    """Return the line of the live view that holds the curve."""
    chronicle = Run()
    progress = Progress(chronicle, Narrator(chronicle))
    for record in told.records:
        list(progress.tell(record))
    now = datetime.fromisoformat(told.records[-1].at)
    lines = frame_lines(progress, now=now, width=100, rows=24)
    return next(line.plain for line in lines if line.plain.startswith("curve"))


def test_the_journal_tells_programs_of_both_measurements(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, lucky_run().records, RUN)
    assert main(["show", RUN, "--runs-dir", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [(found["fate"], found["screen_credit"], found["credit"]) for found in shown["confirmations"]] == [
        ("measured", 2.0, 1.8),
        ("wrong", 2.5, None),
    ]
    assert (shown["provisional"], shown["best"]["screen_speedup"]) == ([], 2.1)


def test_cost_says_what_confirmations_took_and_what_racing_spared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on_disk(tmp_path, lucky_run().records, RUN)
    assert main(["cost", RUN, "--runs-dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "confirmed  2 of them, 6.0 s alone on the device" in lines
    assert "stopped    1 of them early, which spared about 9.0 s on the device" in lines


def test_a_version_says_what_its_confirmation_said_or_that_it_was_refuted() -> None:
    versions = Versions(Run.of(lucky_run().records, with_texts=True))
    best, refuted = versions.named("best"), versions.named("2")
    assert best is not None
    assert refuted is not None
    assert (best.said, best.screen_speedup) == ("round 1, n1, 1.85x", 2.1)
    assert refuted.said == "round 2, n1, wrong"


def test_a_diff_names_the_best_by_its_confirmed_speedup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    on_disk(tmp_path, lucky_run().records, RUN)
    assert main(["diff", RUN, "--runs-dir", str(tmp_path)]) == 0
    assert "(round 1, n1, 1.85x)" in capsys.readouterr().out
    assert main(["diff", RUN, "--json", "--runs-dir", str(tmp_path)]) == 0
    newer = json.loads(capsys.readouterr().out)["b"]
    assert (newer["speedup_vs_reference"], newer["screen_speedup"]) == (1.85, 2.1)


def test_updates_tell_what_each_confirmation_said() -> None:
    told = [one for update in updates_of(lucky_run().records) for one in update.confirmations]
    assert [(one.fate, one.worth and one.worth.speedup, one.screen_speedup) for one in told] == [
        ("measured", 1.85, 2.1),
        ("wrong", None, 2.6),
    ]


def test_the_report_says_the_confirmed_speedup_of_the_best_throughout(tmp_path: Path) -> None:
    records = lucky_run().records
    dossier = dossier_of(on_disk(tmp_path, records, RUN))
    assert "1.85x as fast" in result_words(dossier)
    kernel_text = joined(kernel(dossier)).html
    assert "round 1, n1, 1.85x" in kernel_text
    assert "2.10x" not in kernel_text
    rows = joined(attempts(dossier)).html
    assert "screening said 2.10x the reference [2.00, 2.20], 500.0 us; confirmed: 1.85x the reference" in rows
    assert "screening said 2.60x the reference [2.50, 2.70], 400.0 us; not confirmed: wrong: 1 of 4" in rows


def test_a_comparison_tells_the_round_that_the_best_was_found_in_from_the_rounds_until_it_counted() -> None:
    told = Told()
    told.write("0", measured(2.0, width=0.2), 10.0)
    told.write("1", SLOW, 1.0)  # while the confirmation is under way
    told.confirm("0", measured(1.8, width=0.1), lease_s=5.0)
    best = folded(told.records).best("")
    assert best is not None
    found = {row.title: row.cells for row in rows_of(compared([entrant_of(RUN, folded(told.records))]))}
    assert found["best found in round"] == (str(best.round),) == ("1",)
    assert found["rounds until the best counted"] == ("2",)


STEADIER = [
    "2/3 fuse 0 measured: 2.20x the reference [2.15, 2.25], 465.1 us "
    "(new best: at least 2.15x, the one before at least 2.00x; to be confirmed)",
    "round 2 confirmed: 2.16x the reference [2.12, 2.20], 471.7 us "
    "(screening said 2.20x; the best: at least 2.12x, the one before at least 2.00x)",
]


def steadier_run() -> Told:
    """Return a run whose second best has the smaller speedup and the larger lower end."""
    told = Told()
    told.write("0", measured(2.0, width=0.8), 10.0)
    told.confirm("0", measured(2.0, width=0.8), lease_s=5.0)
    told.write("1", measured(2.15, width=0.1), 10.0)
    told.confirm("1", measured(2.12, width=0.08), lease_s=5.0)
    return told


def told_lines(told: Told, columns: int | None) -> list[str]:
    narrator = Narrator(Run(), lambda: columns)
    return [line for record in told.records for line in narrator.tell(record)]


def test_a_new_best_with_a_smaller_speedup_is_told_with_the_lower_ends_that_make_it_one() -> None:
    lines = [" ".join(line.split()) for line in told_lines(steadier_run(), None)]
    assert [line for line in lines if "the one before" in line] == STEADIER
    assert sum("at least" in line for line in lines) == 2, "no other line needs a reason"


@pytest.mark.parametrize("columns", [80, 100, 127, 128, 140, 200])
def test_a_terminal_shows_why_a_smaller_speedup_is_the_new_best(columns: int) -> None:
    lines = told_lines(steadier_run(), columns)
    assert all(len(line) <= columns for line in lines)
    attempt = next(line for line in lines if line.startswith("2/3"))
    assert attempt.endswith("(new best: at least 2.15x, before 2.00x)")
    assert "2.20x [2.15, 2.25]" in attempt
    (confirmation,) = [line for line in lines if "round 2 confirmed: 2.16x" in line]
    assert "the best: at least 2.12x, " in confirmation
    assert confirmation.endswith("2.00x)")


def test_lower_ends_that_look_alike_are_told_with_more_digits() -> None:
    told = Told()
    told.write("0", measured(2.0, width=0.8), 10.0)
    told.confirm("0", measured(2.0, width=0.8), lease_s=5.0)
    told.write("1", measured(2.002, width=0.1), 10.0)
    assert any("at least 2.0020x, the one before at least 2.0000x" in line for line in told_lines(told, None))
