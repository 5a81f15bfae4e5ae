"""What the reference says of the host and of the candidate beside it, on made-up calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat

import pytest

from evaluators.judge.time.disturbance import Control, Sample


def reference(*latencies_us: float) -> Callable[[], Sample]:
    """Return a reference whose calls take these times in turn, the last one for ever."""
    times = chain(latencies_us, repeat(latencies_us[-1]))
    return timed(times)


def timed(times: Iterator[float]) -> Callable[[], Sample]:
    return lambda: Sample(net_ns=int(next(times) * 1000))


@pytest.fixture
def calm() -> Control:
    control = Control(reference(100.0))
    assert control.check() == ""
    return control


def test_a_host_on_which_the_same_takes_as_long_can_be_timed_on_and_says_so(calm: Control) -> None:
    assert calm.notes == ("control: the reference against itself 1.000x after 4 pairs",)


def test_a_host_on_which_the_same_takes_another_time_cannot_be_timed_on_until_it_does() -> None:
    # A pair's first call stands for the candidate, then for the reference: a side is slower, not a place in the order.
    uneven = chain([100.0, 150.0, 150.0, 100.0] * 4, repeat(100.0))
    control = Control(timed(uneven))
    assert "against itself measures 1.50x after 4 pairs, then to 1.50x after 4 pairs: timing" in control.check()
    assert control.check() == ""


def test_a_host_on_which_the_same_took_another_time_only_at_first_can_be_timed_on() -> None:
    control = Control(timed(chain([100.0, 150.0, 150.0, 100.0] * 2, repeat(100.0))))
    assert control.check() == ""
    assert control.notes == ("control: the reference against itself 1.000x after 4 pairs",)


def test_how_far_the_reference_against_itself_was_off_is_known_and_nothing_where_it_was_not(calm: Control) -> None:
    assert calm.bias == 0.0
    slower = Control(timed(cycle([100.0, 105.0, 105.0, 100.0])))
    assert slower.check() == ""
    assert slower.bias == pytest.approx(0.05, abs=0.002)


def test_what_going_second_costs_is_no_bias() -> None:
    control = Control(timed(cycle([100.0, 150.0])))
    assert control.check() == ""


def test_a_candidate_beside_which_the_reference_is_as_quick_as_ever_is_not_suspected(calm: Control) -> None:
    assert calm.slowed(110.0) == ""


def test_a_reference_that_is_slower_beside_a_candidate_gives_no_credit_and_accuses_nobody(calm: Control) -> None:
    said = calm.slowed(130.0)
    assert "took 130.0 us beside this candidate, but 100.0 us afterwards, alone" in said
    assert "or the host was busy" in said


def test_a_host_that_has_become_slower_is_no_candidates_fault_and_is_the_new_measure() -> None:
    control = Control(timed(chain([100.0] * 8, repeat(140.0))))
    assert control.check() == ""
    assert control.slowed(140.0) == ""
    assert control.slowed(150.0) == ""


def test_a_host_that_was_busy_at_first_does_not_hide_a_candidate_later() -> None:
    control = Control(timed(chain([200.0] * 8, repeat(100.0))))
    assert control.check() == ""
    assert control.slowed(100.0) == ""
    assert control.slowed(150.0) != ""
