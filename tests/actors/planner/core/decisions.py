"""Searches whose decisions are kept: seeded answers for the pure core, and the decisions that followed, as text.

`python -m tests.actors.planner.core.decisions` writes `decisions.txt` anew, after a change of the search that is meant.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.planner.core.state import Requested, in_order
from messages.base import ROOT
from messages.edits import Edit, EditScript, Insert, Prune, Split, Update
from messages.edits import Proposal as Part
from messages.events import Event, JobLost
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    Fact,
    InitialRequested,
    PlanRequested,
    SpendRecorded,
    WriteRequested,
)
from messages.settings import Budget, SearchSettings, Selection
from messages.verdicts import Crashed, Interval, Outpaced, TimedOut, Verdict, Wrong
from tests.actors.planner.core.world import World, built, evaluated, measured, proposed, written

KEPT = Path(__file__).with_name("decisions.txt")
_PATIENT = Selection(patience=0.0)  # those were kept before branches behind the best ended sooner
SEARCHES: dict[str, SearchSettings] = {
    "one branch": SearchSettings(branches=1, stagnation_window=3, repair_window=None, budget=Budget(max_rounds=30)),
    "four branches": SearchSettings(
        branches=4, stagnation_window=2, repair_window=None, selection=_PATIENT, budget=Budget(max_rounds=40)
    ),
    "no world model": SearchSettings(
        branches=2,
        world_model="off",
        stagnation_window=5,
        repair_window=None,
        confirm=False,
        selection=_PATIENT,
        budget=Budget(max_rounds=20),
    ),
}
_FAILURES: tuple[Verdict, ...] = (
    Wrong(reason="3 of 9 elements differ"),
    Crashed(reason="segmentation fault"),
    TimedOut(reason="killed after 5 s", stage="call", limit_s=5.0),
    Outpaced(reason="0.5x", speedup_interval=Interval(low=0.4, high=0.6)),
)


def played(settings: SearchSettings, seed: int = 1) -> World:
    """Return a search that was answered to its end, each request at random but the same way every time."""
    world, draw = World(settings), random.Random(seed)
    while not world.state.finished:
        requests = sorted((job.request for job in world.state.jobs.values()), key=lambda request: request.job_id)
        world.give(_answer(world, draw, draw.choice(requests)))
    return world


def kept_form(fact: Fact) -> dict[str, object]:
    """Return what is kept of a fact: all that is not as its struct has it by default."""
    plain = {field.name: field.default for field in msgspec.structs.fields(fact)}
    form = {name: _plain(value) for name, value in msgspec.structs.asdict(fact).items()}
    said = {name: value for name, value in form.items() if value != _plain(_or_none(plain[name]))}
    return {"fact": type(fact).__name__, **said}


def decisions(name: str) -> list[dict[str, object]]:
    """Return what a search decides today, all but what it paid for."""
    return [kept_form(fact) for fact in played(SEARCHES[name]).facts if not isinstance(fact, SpendRecorded)]


def kept() -> dict[str, list[dict[str, object]]]:
    """Return the decisions that were kept, by search."""
    found: dict[str, list[dict[str, object]]] = {}
    for line in KEPT.read_text(encoding="utf-8").splitlines():
        name, _, text = line.partition(": ")
        found.setdefault(name, []).append(json.loads(text))
    return found


def _plain(value: object) -> object:
    return msgspec.json.decode(msgspec.json.encode(value))


def _or_none(default: object) -> object:
    return None if default is msgspec.NODEFAULT else default


def _answer(world: World, draw: random.Random, request: Requested) -> Event:
    if draw.random() < 0.03:
        return JobLost(job_id=request.job_id, kind="build", error="gone")
    match request:
        case WriteRequested():
            text = f"code {draw.randrange(60)}" if draw.random() < 0.9 else None
            return written(request.job_id, text)
        case BuildRequested():
            return built(request.job_id, request.candidate_id, ok=draw.random() < 0.85)
        case EvaluationRequested() | ConfirmationRequested() | InitialRequested():
            verdict = draw.choice(_FAILURES) if draw.random() < 0.4 else measured(round(draw.uniform(0.5, 3.0), 2))
            return evaluated(request.job_id, request.candidate_id, verdict, lease_s=1.0)
        case PlanRequested():
            return proposed(request.job_id, _script(world, draw) if draw.random() < 0.9 else None)


def _script(world: World, draw: random.Random) -> EditScript:
    ids = [node.node_id for node in in_order(world.state.nodes)] + ["n999"] * (draw.random() < 0.1)
    edits: list[Edit] = [
        Insert(
            parent=draw.choice(ids),
            title=f"idea {draw.randrange(40)}",
            description="d",
            difficulty=draw.randint(1, 5),
            priority=round(draw.random(), 2),
        )
        for _ in range(draw.randint(0, 4))
    ]
    if len(ids) > 1 and draw.random() < 0.4:
        edits.append(Update(node=draw.choice(ids[1:]), priority=round(draw.random(), 2)))
    if len(ids) > 4 and draw.random() < 0.2:
        edits.append(Prune(node=draw.choice(ids[1:]), reason="r"))
    if len(ids) > 4 and draw.random() < 0.2:
        parts = tuple(
            Part(title=f"part {draw.randrange(90)}", description="", difficulty=1, priority=0.5) for _ in range(2)
        )
        edits.append(Split(node=draw.choice(ids[1:]), into=parts))
    return EditScript(summary=f"after {len(ids)} nodes under {ROOT}", edits=tuple(edits))


def _lines() -> Iterator[str]:
    for name in SEARCHES:
        for decision in decisions(name):
            yield f"{name}: {json.dumps(decision, separators=(',', ':'))}\n"


if __name__ == "__main__":
    KEPT.write_text("".join(_lines()), encoding="utf-8")
