"""The upstream's metrics from verdicts."""

from __future__ import annotations

import math

from evaluators.tasks.kernelbench.scoring import Outcome, fast_p, outcome_of, score
from messages.verdicts import Interval, Measured, Unstable, Wrong


def measured(speedup: float, baseline: float | None = None) -> Measured:
    return Measured(timed=True, speedup_vs_reference=speedup, speedup_vs_baseline=baseline)


def test_fast_p_is_a_share_of_all_problems_also_of_those_that_were_not_solved() -> None:
    outcomes = [outcome_of(verdict) for verdict in (measured(2.0), measured(1.0), Wrong(reason="off"), None)]
    assert [fast_p(outcomes, threshold) for threshold in (0.0, 0.8, 1.0, 1.5, 2.0)] == [0.5, 0.5, 0.25, 0.25, 0.0]


def test_the_geometric_mean_is_over_correct_candidates_only() -> None:
    found = score([outcome_of(verdict) for verdict in (measured(4.0), measured(0.25), Wrong(reason="off"))], "eager")
    assert found.geometric_mean is not None
    assert math.isclose(found.geometric_mean, 1.0)
    assert found.geometric_mean_faster == 4.0
    assert (found.problems, found.correct, found.timed) == (3, 2, 2)


def test_a_wrong_candidates_speed_counts_nowhere() -> None:
    found = score([Outcome(correct=False, speedup=8.0), Outcome(correct=True, speedup=2.0)], "eager")
    assert found.geometric_mean is not None
    assert math.isclose(found.geometric_mean, 2.0)
    assert found.timed == 1


def test_a_correct_candidate_of_unknown_speed_is_correct_and_not_fast() -> None:
    unstable = Unstable(reason="noise", speedup_interval=Interval(low=1.0, high=9.0))
    assert outcome_of(unstable) == Outcome(correct=True)
    found = score([outcome_of(unstable), outcome_of(Measured(timed=False))], "eager")
    assert found.fast_p["0.0"] == 1.0
    assert found.fast_p["0.5"] == 0.0
    assert found.geometric_mean is None


def test_the_second_baseline_has_a_score_of_its_own() -> None:
    assert outcome_of(measured(3.0, 0.5), baseline=True) == Outcome(correct=True, speedup=0.5)


def test_nothing_has_no_score() -> None:
    assert score([], "eager").fast_p["1.0"] == 0.0
