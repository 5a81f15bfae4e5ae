"""What an endpoint that keeps prefixes has read before, over a whole search with the built-in rules."""

from __future__ import annotations

import pytest

from actors.llm.offline import OfflineModel
from actors.planner.jobs import Texts
from actors.planner.prompts import SYSTEM
from messages.events import EditsProposed
from messages.settings import Budget, SearchSettings
from tests.actors.llm.offline.prompts import description
from tests.actors.llm.offline.test_planning import landscape
from tests.actors.planner.rig import Rig


def common(first: str, second: str) -> int:
    """Return how many characters two texts have in common from their beginnings."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if first.startswith(second[:middle]) else (low, middle - 1)
    return low


@pytest.mark.anyio
@pytest.mark.virtual_time
@pytest.mark.parametrize("branches", [1, 4])
async def test_three_fifths_of_what_the_planner_is_asked_in_a_hundred_rounds_was_read_before(branches: int) -> None:
    rig = Rig(SearchSettings(branches=branches, budget=Budget(max_rounds=100)), description=description())
    await rig.search(OfflineModel(latency_s=0.5), judge=landscape, evaluation_s=0.3)
    texts, prompts = Texts(), []
    for _, body in rig.bodies:
        texts.take(body)
        if isinstance(asked := texts.whole(body), EditsProposed):
            prompts.append(SYSTEM + asked.prompt)
    assert len(prompts) > 5
    read_before = sum(
        max((common(prompt, before) for before in prompts[:number]), default=0) for number, prompt in enumerate(prompts)
    )
    assert read_before >= 0.6 * sum(map(len, prompts))
