"""A branch that is behind the others gives up its slot sooner; one that leads, and a lonely one, does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rpds import HashTrieMap

from actors.planner.core.scheduling import window_of
from actors.planner.core.state import Incumbent, Score, SearchState, root_node
from messages.base import ROOT
from messages.settings import SearchSettings, Selection


def state(best: float | None, **settings: object) -> SearchState:
    found = SearchState(settings=SearchSettings(stagnation_window=5, **settings))  # type: ignore[arg-type]
    if best is None:
        return found
    return replace(found, incumbent=Incumbent(candidate_id="c", node_id="n1", round=1, credit=best, speedup=best))


@pytest.mark.parametrize(
    ("credit", "window"),
    [(2.0, 5), (2.5, 5), (1.8, 3), (1.5, 1), (0.1, 1)],  # 5 exp(ln(credit / 2) / 0.2), at least 1
)
def test_the_window_shrinks_with_the_distance_to_the_incumbent(credit: float, window: int) -> None:
    assert window_of(state(2.0), credit) == window


@pytest.mark.parametrize(
    "unhurried",
    [
        state(2.0, selection=Selection(patience=0.0)),
        state(2.0, selection=Selection(rule="paper")),
        state(2.0, branches=1),
        state(None),
    ],
)
def test_it_stays_without_patience_under_the_paper_s_rule_with_one_branch_and_without_an_incumbent(
    unhurried: SearchState,
) -> None:
    assert window_of(unhurried, 0.5) == 5


def test_with_scores_the_distance_is_the_share_of_what_was_gained() -> None:
    root = replace(root_node(), best=Score(candidate_id="c0", credit=8.0))
    scored = replace(state(10.0), initial_id="c0", nodes=HashTrieMap({ROOT: root}))
    assert window_of(scored, 9.6) == 2  # a fifth of the gain is missing: 5 / e
