"""What is drawn are the journal's numbers."""

from __future__ import annotations

import pytest

from ksearch_async.runs.run import Run
from ksearch_async.views.report.data import (
    Band,
    band_of,
    baseline_of,
    curve_of,
    fractions_of,
    reached,
    roofline_of,
    value_at,
    workloads_of,
)
from ksearch_async.views.tree_layout import path_to_best
from tests.ksearch_async.stories import sequel, story
from tests.ksearch_async.views.report.recorded import gpu_records, priced, seeded, timed, with_workloads


def test_the_best_so_far_steps_when_a_candidate_is_confirmed_not_when_it_is_screened() -> None:
    trace = Run.of(gpu_records("softmax_rows_1_h200"))
    assert [(step.mark.round, step.at.rounds) for step in trace.steps] == [(5, 8)]
    assert [(x, round(y, 4)) for x, y in curve_of(trace, "rounds")] == [(8, 2.1119)]
    assert curve_of(trace, "seconds")[0][0] == pytest.approx(35.2, abs=0.1)
    assert curve_of(trace, "dollars") == ()  # no prices are known


def test_a_search_on_a_gpu_has_the_figures_of_its_journal() -> None:
    trace = Run.of(gpu_records("rmsnorm_silu_2_h200"))
    assert (trace.place.rounds, round(trace.place.seconds), trace.place.dollars) == (60, 136, None)
    assert sum(tried.fact.round > 0 for tried in trace.tried) == 60
    assert path_to_best(trace.state) == ("n4", "n19")
    baseline = baseline_of(trace)
    assert baseline is not None
    assert (baseline[0], round(baseline[1], 3)) == ("torch.compile", 4.746)
    assert roofline_of(trace) == pytest.approx(3592.8 / 657.99, abs=1e-3)
    assert trace.step is not None
    assert [round(end, 3) for end in trace.step.interval] == [4.870, 4.877]


def test_a_level_is_reached_by_the_lower_end_of_the_interval() -> None:
    trace = Run.of(story())  # 2.0x [1.9, 2.1]
    assert reached(trace, 2.0) is None
    assert reached(trace, 1.9) == trace.steps[0].at


def test_curves_are_put_together_from_where_each_has_a_best() -> None:
    slow, fast = Run.of(story()), Run.of(seeded(sequel(), 1))
    assert curve_of(slow, "rounds") == ((2, 2.0),)
    assert curve_of(fast, "rounds") == ((2, 2.0), (3, 2.5))
    band = Band(x=(2, 3), middle=(2.0, 2.25), low=(2.0, 2.0), high=(2.0, 2.5))
    assert band_of([slow, fast], "rounds") == band
    late, early = (Run.of(gpu_records(f"softmax_rows_{number}_h200")) for number in (1, 2))
    assert (early.steps[0].at.rounds, late.steps[0].at.rounds) == (4, 8)
    both = band_of([late, early], "rounds")
    assert both is not None
    assert (both.x[0], both.x[-1]) == (8, 60)
    assert band_of([slow, Run.of(story()[:6])], "rounds") is None  # one has none
    assert band_of([], "rounds") is None


def test_dollars_are_an_axis_where_all_prices_are_known() -> None:
    trace = Run.of(priced(sequel(), 0.25))
    assert trace.place.dollars
    assert curve_of(trace, "dollars") == ((0.5, 2.0), (0.75, 2.5))
    assert not Run.of(story()).place.dollars


def test_a_curve_keeps_its_height_until_the_next_step() -> None:
    assert [value_at(((2, 1.0), (4, 3.0)), x) for x in (1, 2, 3, 4, 9)] == [None, 1.0, 1.0, 3.0, 3.0]


def test_workloads_of_one_run_have_its_interval_and_those_of_several_their_range() -> None:
    first = Run.of(with_workloads(timed("small", 1.0), timed("large", 4.0, baseline=2.0)))
    second = Run.of(with_workloads(timed("small", 2.0), timed("large", 3.0)))
    small, large = workloads_of([first])
    assert (small.name, small.low, small.high, small.baseline) == ("small", 0.9, 1.1, None)
    assert (large.name, large.baseline) == ("large", 2.0)
    small, large = workloads_of([first, second])
    assert (small.speedup, small.low, small.high) == (1.5, 1.0, 2.0)
    assert (large.speedup, large.low, large.high) == (3.5, 3.0, 4.0)


def test_a_task_of_one_workload_has_it_under_its_own_name() -> None:
    (only,) = workloads_of([Run.of(story())])
    assert (only.name, only.speedup, only.low, only.high) == ("relu", 2.0, 1.9, 2.1)
    assert workloads_of([Run.of(story()[:6])]) == ()


def test_a_fraction_counts_the_workloads_that_are_faster() -> None:
    trace = Run.of(with_workloads(timed("a", 4.0), timed("b", 1.0), timed("c", 2.0), timed("d", 2.0)))
    assert fractions_of([trace]) == ((1.0, 0.75), (2.0, 0.5), (2.0, 0.25), (4.0, 0.0))
