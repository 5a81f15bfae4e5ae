"""Landscapes are what they claim to be, and a search of one is repeated exactly by its seed."""

from __future__ import annotations

import pytest

from messages.settings import Budget, SearchSettings
from tests.landscape.landscape import GATED_PAIRS, PAIRS, TECHNIQUES, Kind, Landscape, Program, family, with_technique
from tests.landscape.search import Search, best_of_n

ROUNDS = 30


@pytest.mark.parametrize("seed", range(5))
def test_some_pairs_pay_only_together(seed: int) -> None:
    landscape = Landscape(seed)
    assert len(landscape.pairs) == PAIRS
    gated = [pair for pair in landscape.pairs if min(landscape.effects[technique] for technique in pair) <= -0.1]
    assert len(gated) >= GATED_PAIRS
    first, second = gated[0]
    costly = first if landscape.effects[first] < landscape.effects[second] else second
    alone = landscape.effect(Program(frozenset({costly}), 0.5, 1))
    together = landscape.effect(Program(frozenset({first, second}), 0.5, 1))
    assert together > alone


def test_techniques_of_a_family_exclude_each_other() -> None:
    rivals = [technique for technique in range(TECHNIQUES) if family(technique) == family(3)]
    assert with_technique(frozenset({rivals[0], 1}), rivals[1]) == frozenset({rivals[1], 1})


def test_on_flat_ground_nothing_follows_from_the_techniques() -> None:
    landscape = Landscape(1, "flat")
    assert landscape.effect(Program(frozenset({1}), 0.5, 1)) != landscape.effect(Program(frozenset({1}), 0.5, 2))


@pytest.mark.parametrize("kind", ["structured", "flat"])
@pytest.mark.parametrize("branches", [1, 4])
def test_a_search_uses_its_rounds_and_is_repeated_by_its_seed(kind: Kind, branches: int) -> None:
    settings = SearchSettings(branches=branches, budget=Budget(max_rounds=ROUNDS))
    first, again = (Search(Landscape(2, kind), settings, seed=5) for _ in range(2))
    points = list(first.points())
    assert len(points) == ROUNDS
    assert first.state.finished
    assert points == list(again.points())
    assert [point.seconds for point in points] == sorted(point.seconds for point in points)


def test_branches_that_work_at_once_take_less_time() -> None:
    def seconds(branches: int) -> float:
        settings = SearchSettings(branches=branches, budget=Budget(max_rounds=ROUNDS))
        return list(Search(Landscape(3), settings, seed=1).points())[-1].seconds

    assert seconds(4) < seconds(1) / 2


def test_the_best_of_independent_attempts_never_falls() -> None:
    effects = [point.effect for point in best_of_n(Landscape(4), ROUNDS, seed=1)]
    assert effects == sorted(effects)
    assert len(effects) == ROUNDS
