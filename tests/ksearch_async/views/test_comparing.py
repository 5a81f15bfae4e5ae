"""Runs are compared with their like, and figures over them say what they cover."""

from __future__ import annotations

from math import inf

import pytest
from msgspec.structs import replace

from ksearch_async.runs.run import Run
from ksearch_async.views.compare import Comparison, Spread, compared, entrant_of, rows_of, spread_of, spread_words
from messages.base import ConfigError
from messages.codec import Record
from messages.events import RunStarted
from messages.settings import Budget
from messages.tasks import TaskRules
from messages.verdicts import Interval, Scored, Unstable
from tests.ksearch_async.stories import FASTER_KERNEL, KERNEL, SLOPPY, attempt, records_of, sequel, story
from tests.ksearch_async.views.report.recorded import gpu_records, priced, seeded


def started_otherwise(records: list[Record], **changes: object) -> list[Record]:
    """Return a run whose first event is another."""
    first = records[0]
    assert isinstance(first.body, RunStarted)
    return [replace(first, body=replace(first.body, **changes)), *records[1:]]


def comparison_of(*runs: list[Record]) -> Comparison:
    return compared([entrant_of(f"run{place}", Run.of(records)) for place, records in enumerate(runs)])


def cells(comparison: Comparison) -> dict[str, tuple[str, ...]]:
    return {row.title: row.cells for row in rows_of(comparison)}


def test_runs_that_differ_by_their_seeds_alone_are_one_group_with_median_and_range() -> None:
    comparison = comparison_of(story(), seeded(story(), 1, speedup=3.0), seeded(story(), 2, speedup=4.0))
    (group,) = comparison.groups
    assert (group.told, [entrant.seed for entrant in group.entrants]) == ("", [0, 1, 2])
    found = cells(comparison)
    assert found["seeds"] == ("0, 1, 2",)
    assert found["best speedup"] == ("3.00x (2.00x to 4.00x)",)
    assert found["rounds until the best counted"] == ("2",)
    assert found["rounds to 3x"] == ("- (1 of 3)",)  # 2.9 is the lower end of the second
    assert found["rounds to 1.5x"] == ("2",)
    assert found["wrong"] == ("3",)


def test_a_run_that_found_nothing_counts_as_worse_than_any_other() -> None:
    comparison = comparison_of(story(), story()[:6], seeded(story(), 2, speedup=3.0))
    assert cells(comparison)["best speedup"] == ("2.00x (2 of 3)",)


def test_runs_on_different_devices_are_never_one_group() -> None:
    first = story()[0].body
    assert isinstance(first, RunStarted)
    other = started_otherwise(story(), target=replace(first.target, device="NVIDIA H200"))
    comparison = comparison_of(story(), other)
    assert [group.told for group in comparison.groups] == ["AMD EPYC", "NVIDIA H200"]
    assert "device" not in comparison.common
    assert [series.label for series in comparison.series] == ["A: AMD EPYC (1 run)", "B: NVIDIA H200 (1 run)"]


def test_groups_are_told_by_the_settings_in_which_they_differ() -> None:
    comparison = comparison_of(gpu_records("softmax_rows_1_h200"), gpu_records("softmax_rows_2_h200"))
    assert [group.told for group in comparison.groups] == ["max rounds 36", "max rounds 60"]
    assert comparison.brief == "NVIDIA H200, triton, model offline-rules, world model evolving, branches 4"
    found = cells(comparison)
    assert found["best speedup"] == ("2.11x [2.11, 2.12]", "2.10x [2.09, 2.10]")
    assert found["rounds to 2x"] == ("8", "4")
    assert found["rejected"] == ("11", "2")


def test_a_run_that_goes_on_with_another_budget_is_compared_by_that() -> None:
    first = story()[0].body
    assert isinstance(first, RunStarted)
    settings = replace(first.settings, budget=Budget(max_rounds=9))
    comparison = comparison_of(story(), started_otherwise(story(), settings=settings))
    assert len(comparison.groups) == 1  # both searches were opened with two rounds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rules": TaskRules(library_calls="allow")}, "rules.library_calls (deny and allow)"),
        ({"text": "class Model: ...\n\n"}, "text (another one)"),
    ],
)
def test_runs_of_different_tasks_are_refused_with_what_differs(change: dict[str, object], said: str) -> None:
    first = story()[0].body
    assert isinstance(first, RunStarted)
    other = started_otherwise(story(), task=replace(first.task, **change))
    with pytest.raises(ConfigError) as error:
        comparison_of(story(), other)
    assert str(error.value).endswith(f"different tasks: {said}")


def test_failures_are_counted_by_kind_and_so_is_what_a_busy_host_made_unstable() -> None:
    told = story(stopped_by=None)
    shaken = Unstable(reason="disturbed", speedup_interval=Interval(low=0.5, high=2.0))
    found = cells(comparison_of(story(), [*told, *records_of(attempt(9, FASTER_KERNEL, shaken), after=len(told))]))
    assert (found["attempts"], found["wrong"], found["unstable"]) == (("5",), ("2",), ("1",))
    assert "measured" not in found


def test_dollars_are_compared_where_prices_are_known() -> None:
    assert "dollars used" not in cells(comparison_of(story(), sequel()))
    found = cells(comparison_of(priced(sequel(), 0.25), priced(seeded(sequel(), 1), 0.5)))
    assert found["dollars until the best counted"] == ("$1.1250 ($0.7500 to $1.5000)",)


def test_programs_have_scores_and_no_levels() -> None:
    first = story()[0].body
    assert isinstance(first, RunStarted)
    told = started_otherwise(story(stopped_by=None)[:-10], initial=SLOPPY)
    records = [*told, *records_of(attempt(6, KERNEL, Scored(score=0.75)), after=len(told))]
    found = cells(comparison_of(records, seeded(records, 1)))
    assert "best score" in found
    assert not [title for title in found if title.endswith("x")]


def test_a_run_without_a_first_event_is_refused() -> None:
    with pytest.raises(ConfigError, match="has not begun"):
        entrant_of("mine", Run())


@pytest.mark.parametrize(
    ("values", "missing", "spread", "words"),
    [
        ([1.0, 2.0, 9.0], inf, Spread(runs=3, known=3, median=2.0, low=1.0, high=9.0), "2 (1 to 9)"),
        ([5.0], inf, Spread(runs=1, known=1, median=5.0, low=5.0, high=5.0), "5"),
        ([4.0, None, 2.0], inf, Spread(runs=3, known=2, median=4.0, low=2.0, high=4.0), "4 (2 of 3)"),
        ([4.0, None, 2.0], -inf, Spread(runs=3, known=2, median=2.0, low=2.0, high=4.0), "2 (2 of 3)"),
        ([4.0, None, None], inf, Spread(runs=3, known=1, median=None, low=4.0, high=4.0), "- (1 of 3)"),
        ([None], inf, Spread(runs=1, known=0, median=None, low=None, high=None), "-"),
    ],
)
def test_a_median_counts_runs_that_never_got_there_as_worse_than_any(
    values: list[float | None], missing: float, spread: Spread, words: str
) -> None:
    assert spread_of(values, missing=missing) == spread
    assert spread_words(spread, "{:.0f}".format) == words
