"""How busy devices were: the share of time for which their leases were held."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ksearch_async.views.progress import DeviceUse, Utilisation
from messages.events import CandidateEvaluated
from messages.verdicts import Wrong

START = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


def evaluated(*, lease_s: float, wall_s: float = 0.0, unit: str = "", worker: str = "") -> CandidateEvaluated:
    return CandidateEvaluated(
        job_id="e1",
        candidate_id="c",
        verdict=Wrong(reason="1 of 2"),
        device="NVIDIA H200",
        unit=unit,
        wall_s=wall_s,
        lease_s=lease_s,
        worker=worker,
    )


def used(known: Utilisation, seconds: float, *, is_waiting: bool = False, is_timed: bool = True) -> list[DeviceUse]:
    return known.devices(START + timedelta(seconds=seconds), since=START, is_waiting=is_waiting, is_timed=is_timed)


def taken(*verdicts: tuple[float, CandidateEvaluated], slots: int | None = None) -> Utilisation:
    known = Utilisation(slots=slots)
    for seconds, verdict in verdicts:
        known.take(verdict, START + timedelta(seconds=seconds))
    return known


def test_the_share_is_that_of_the_last_minute_and_of_the_session_before_it_has_lasted_one() -> None:
    known = taken((10, evaluated(lease_s=5)), (20, evaluated(lease_s=5)))
    assert used(known, 20)[0].share == pytest.approx(10 / 20)
    assert used(known, 40)[0].share == pytest.approx(10 / 40)
    many = taken(*((at, evaluated(lease_s=2)) for at in range(5, 605, 5)))
    assert used(many, 600)[0].share == pytest.approx(0.4, abs=0.02)
    assert used(many, 700)[0].share == 0.0


def test_long_evaluations_do_not_come_and_go_in_a_window_that_is_shorter_than_they_are() -> None:
    long = taken(*((at, evaluated(lease_s=150, wall_s=200)) for at in range(200, 1001, 200)))
    assert used(long, 1000)[0].share == pytest.approx(0.75)
    assert used(long, 1020)[0].share == pytest.approx(0.75)


def test_what_a_device_does_since_its_latest_verdict_is_not_held_to_be_nothing_while_it_is_waited_for() -> None:
    known = taken((10, evaluated(lease_s=10)))
    assert used(known, 20)[0].share == pytest.approx(0.5)
    assert used(known, 20, is_waiting=True)[0].share == pytest.approx(1.0)
    assert used(known, 50, is_waiting=True)[0].share == pytest.approx(0.2)  # too long ago: it may hang


def test_time_is_counted_once_however_many_evaluations_were_at_work_in_it() -> None:
    known = taken((10, evaluated(lease_s=0, wall_s=10)), (10, evaluated(lease_s=0, wall_s=8)))
    assert used(known, 20)[0].share == 0.0
    assert used(known, 20, is_timed=False)[0].share == pytest.approx(0.5)


def test_devices_are_named_by_unit_and_where_there_are_several_processes_by_process_too() -> None:
    one = taken((9, evaluated(lease_s=1, unit="cuda:0")), (10, evaluated(lease_s=4, unit="cuda:1")))
    assert [(use.name, use.verdicts) for use in used(one, 10)] == [("cuda:1", 1), ("cuda:0", 1)]
    assert [use.name for use in used(taken((9, evaluated(lease_s=1, worker="ev-1"))), 10)] == ["NVIDIA H200"]
    two = [evaluated(lease_s=1, unit="cuda:0", worker=f"ev-{number}") for number in (1, 2)]
    assert [use.name for use in used(taken(*((9, each) for each in two)), 10)] == ["ev-1 cuda:0", "ev-2 cuda:0"]


def test_slots_are_those_that_are_known_or_else_as_many_as_were_seen_at_work_at_once() -> None:
    assert taken(slots=3).slots() == 3
    assert taken().slots() is None
    beside = [(10, evaluated(lease_s=1, wall_s=8)), (12, evaluated(lease_s=1, wall_s=8))]
    assert taken(*beside).slots() == 2
    after = [(10, evaluated(lease_s=1, wall_s=8)), (18, evaluated(lease_s=1, wall_s=8))]
    assert taken(*after).slots() == 1
    assert taken(*after, (18, evaluated(lease_s=1, wall_s=3, worker="other"))).slots() == 2


def test_it_is_said_how_long_an_evaluation_takes() -> None:
    known = taken((10, evaluated(lease_s=1, wall_s=4)), (12, evaluated(lease_s=3)))
    assert used(known, 20)[0].mean_s == pytest.approx(3.5)
