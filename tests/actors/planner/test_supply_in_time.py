"""Many coders are kept busy from three open nodes on: the whole planner in virtual time, on a bus in memory."""

from __future__ import annotations

import random
import re

import anyio
import msgspec
import pytest

from actors.llm.base import Answer, Request, ScriptedModel
from messages.settings import Budget, SearchSettings
from tests.actors.planner.rig import Rig, coder_answers

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

CODERS, CODER_S, EVALUATION_S, PLANNER_S = 32, 8.0, 2.0, 8.0
BEGIN_S, END_S = 120.0, 240.0
_CLOSED = re.compile(r"^(n\d+) < \S+ \| closed", re.MULTILINE)
_WANTED = re.compile(r"Insert (\d+) new actions")


def plan(request: Request) -> str:
    """Answer with as many actions as are asked for, under closed nodes; at first with three."""
    draw = random.Random(request.request_id)
    asked, parents = _WANTED.search(request.parts[-1]), _CLOSED.findall(request.prompt)
    edits = [
        {
            "op": "insert",
            "parent": draw.choice(parents[-40:]) if parents else "n0",
            "title": f"idea {request.request_id}.{index}",
            "description": "try it",
            "difficulty": draw.randint(1, 5),
            "priority": round(draw.random(), 2),
        }
        for index in range(int(asked[1]) if asked else 3)
    ]
    return "```json\n" + msgspec.json.encode({"edits": edits}).decode() + "\n```"


class _Timed(ScriptedModel):
    """A coder's model that keeps account of how long it was busy from `BEGIN_S` to `END_S`."""

    busy_s = 0.0

    async def complete(self, request: Request) -> Answer:
        began = anyio.current_time()
        answer = await super().complete(request)
        self.busy_s += max(0.0, min(anyio.current_time(), END_S) - max(began, BEGIN_S))
        return answer


async def test_from_three_open_nodes_on_coders_are_soon_busy_and_stay_so() -> None:
    rig = Rig(SearchSettings(branches=CODERS * 3 // 2, budget=Budget(max_rounds=100_000)))
    coder = _Timed(coder_answers(), latency_s=CODER_S)
    with anyio.move_on_after(END_S + 2 * CODER_S):
        await rig.search(
            ScriptedModel(plan, latency_s=PLANNER_S), coder_model=coder, evaluation_s=EVALUATION_S, slots=CODERS
        )
    assert coder.busy_s / (CODERS * (END_S - BEGIN_S)) >= 0.95
