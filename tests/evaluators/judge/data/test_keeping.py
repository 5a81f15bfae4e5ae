"""Room for data: what is taken is not there for another workload, and a GPU's is not all taken."""

from __future__ import annotations

from itertools import chain

import pytest

from evaluators.judge.data.families import GIVEN, PERTURBED, CheckData
from evaluators.judge.data.memory import Room, gpu_bytes
from evaluators.judge.reference.problem import Problem
from messages.tasks import Tolerance
from tests.evaluators.words import SMALL_TASK

GIB = 1 << 30


def test_what_one_has_taken_nobody_else_gets_until_it_is_given_back() -> None:
    room = Room(100)
    assert room.take(60)
    assert not room.take(41)
    room.give_back(60)
    assert room.take(100)


@pytest.mark.parametrize(
    ("free", "total", "needed", "most"),
    [
        (125, 140, 33, 46),  # half of what is left beside judging
        (138, 140, 1, 56),  # two fifths of the memory, however little judging takes
        (75, 80, 60, 7),
        (60, 80, 75, 0),
    ],
)
def test_candidates_find_memory_beside_what_is_kept(free: int, total: int, needed: int, most: int) -> None:
    assert gpu_bytes(free * GIB, total * GIB, needed * GIB) // GIB == most


def data_in(room: Room) -> CheckData:
    return CheckData(Problem(SMALL_TASK), Tolerance(), drawn=0, extra_s=0.0, room=room)


def test_workloads_keep_data_while_there_is_room_and_make_the_rest_anew() -> None:
    sizes = [data.size_bytes for data in data_in(Room(0)).sets()]
    room = Room(sum(sizes) + sizes[0])
    first, second = data_in(room), data_in(room)
    seeds = [[data.seed for data in one.sets()] for one in (first, second)]
    again = [[data.seed for data in one.sets()] for one in (first, second)]
    assert again[0] == seeds[0]
    assert [one == other for one, other in zip(again[1], seeds[1], strict=True)] == [True] + [False] * (len(sizes) - 1)


def test_the_oldest_data_is_renewed_in_its_own_room() -> None:
    sizes = [data.size_bytes for data in data_in(Room(0)).sets()]
    data = data_in(Room(sum(sizes)))
    seen = [[one.seed for one in data.sets()] for _ in range(9)]
    renewed = [number for number in range(1, 9) if seen[number] != seen[number - 1]]
    assert renewed == [3, 7]
    assert all(sum(one != other for one, other in zip(seen[n], seen[n - 1], strict=True)) == 1 for n in renewed)


def test_what_is_forgotten_is_made_anew_in_half_of_the_room() -> None:
    sizes = [data.size_bytes for data in data_in(Room(0)).sets()]
    room = Room(sum(sizes))
    data = data_in(room)
    before = [one.seed for one in data.sets()]
    assert data.forget()
    room.reopen(halved=True)
    after = [one.seed for one in data.sets()]
    assert not set(before) & set(after)
    assert not room.take(sum(sizes) // 2)
    assert data.forget()
    assert not data.forget()
    assert room.take(sum(sizes) // 2)


def families_in_brief(data: CheckData) -> list[str]:
    return [one.family for one in chain(data.in_brief(), data.drawn_in_brief())]


def test_in_brief_a_candidate_sees_what_the_task_draws_and_one_family_more() -> None:
    data = data_in(Room(1 << 30))
    seen = [families_in_brief(data) for _ in range(40)]
    assert all(len(families) == 2 and families[0] == GIVEN for families in seen)
    others = {families[1] for families in seen}
    assert PERTURBED not in others
    assert len(others) > 2, "always the same"


def test_in_brief_what_is_there_is_used_again_three_times_in_four() -> None:
    problem = Problem(SMALL_TASK)

    def made_for_eight() -> int:
        data = CheckData(problem, Tolerance(), drawn=0, extra_s=0.0, room=Room(1 << 30))
        return len({family for _ in range(8) for family in families_in_brief(data)} - {GIVEN})

    # One and a quarter of seven is 2.75; of eight drawn without regard about 5.5 are different.
    made = [made_for_eight() for _ in range(40)]
    assert 2.0 < sum(made) / len(made) < 4.0
