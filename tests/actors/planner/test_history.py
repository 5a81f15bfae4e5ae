"""What a planner finds in its run's past."""

from __future__ import annotations

from actors.planner.core.decide import decide
from actors.planner.core.state import SearchState
from actors.planner.history import Folding, fold
from messages.codec import Body
from messages.events import ClockTicked, RunResumed, StopRequested
from messages.facts import Decided
from messages.settings import SearchSettings
from messages.steering import Pin, SteeringRequested
from tests.actors.planner.core.world import DESCRIPTION, RUN, inserts, proposed, started, written


def told(*bodies: Body) -> list[tuple[int, Body]]:
    return list(enumerate(bodies, start=1))


def test_events_change_nothing_until_a_decision_names_them() -> None:
    history = fold(told(started(SearchSettings())))
    assert history.state == SearchState()
    assert [seq for seq, _ in history.pending] == [1]
    assert history.texts.started.description == DESCRIPTION


def test_a_decision_takes_its_cause_out_of_what_is_pending() -> None:
    opening = started(SearchSettings())
    facts = decide(SearchState(), opening)
    history = fold(told(opening, Decided(cause=1, facts=facts)))
    assert history.pending == ()
    assert history.last_decision == 2
    assert history.state.running


def test_decisions_may_lie_behind_later_events() -> None:
    opening = started(SearchSettings())
    folding = Folding()
    first = decide(SearchState(), opening)
    answer = proposed(f"{RUN}-p1", inserts(1))
    for seq, body in told(opening, answer, Decided(cause=1, facts=first)):
        folding.take(seq, body)
    assert folding.history().pending == ((2, answer),)


def test_a_resumption_is_handled_after_the_start_and_before_what_came_in_while_the_run_lay_still() -> None:
    late = written(f"{RUN}-w3", "a")
    resumed = RunResumed(run_id=RUN)
    history = fold(told(started(SearchSettings()), late, resumed))
    assert [seq for seq, _ in history.pending] == [1, 3, 2]


def test_stops_and_ticks_from_before_a_resumption_are_void() -> None:
    resumed = RunResumed(run_id=RUN)
    later = StopRequested(reason="again")
    history = fold(told(StopRequested(reason="x"), ClockTicked(elapsed_s=1), resumed, later))
    assert [seq for seq, _ in history.pending] == [3, 4]


def test_a_stop_that_came_too_late_for_its_session_is_void_once_the_run_was_resumed() -> None:
    resumed = RunResumed(run_id=RUN)
    facts = decide(SearchState(), started(SearchSettings()))
    history = fold(told(StopRequested(reason="too late"), resumed, Decided(cause=2, facts=facts)))
    assert history.pending == ()


def over() -> list[Body]:
    """A run that was stopped."""
    opening = started(SearchSettings())
    first = decide(SearchState(), opening)
    state = fold(told(opening, Decided(cause=1, facts=first))).state
    stop = StopRequested(reason="")
    return [opening, Decided(cause=1, facts=first), stop, Decided(cause=3, facts=decide(state, stop))]


PIN = SteeringRequested(order=Pin(node_id="n1"))


def test_what_people_ordered_of_a_run_that_was_over_is_handled_before_its_resumption() -> None:
    history = fold(told(*over(), PIN, RunResumed(run_id=RUN), PIN))
    assert history.state.finished
    assert [seq for seq, _ in history.pending] == [5, 6, 7]


def test_what_came_before_an_order_that_is_decided_on_while_the_run_is_over_still_waits() -> None:
    late = written(f"{RUN}-w3", "a")
    before = told(*over(), late, PIN, RunResumed(run_id=RUN))
    state = fold(before).state
    decided = Decided(cause=6, facts=decide(state, PIN))
    history = fold([*before, (8, decided)])
    assert [seq for seq, _ in history.pending] == [7, 5]


def test_what_people_ordered_of_a_run_that_was_killed_is_handled_after_its_resumption() -> None:
    opening = started(SearchSettings())
    first = Decided(cause=1, facts=decide(SearchState(), opening))
    history = fold(told(opening, first, PIN, RunResumed(run_id=RUN)))
    assert [seq for seq, _ in history.pending] == [4, 3]
