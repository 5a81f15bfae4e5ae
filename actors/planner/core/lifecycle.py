"""The life of a run as folds: opened, reopened, paused, stopping, over; its time and its costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from actors.planner.core.arms import arms_of, with_usage
from actors.planner.core.entries import put, put_node
from actors.planner.core.state import SearchState, root_node
from actors.planner.core.telling import with_rate
from messages.facts import (
    Fact,
    RunContinued,
    RunFinished,
    RunPaused,
    RunStopping,
    SearchOpened,
    SearchReopened,
    SpendRecorded,
    TimeNoted,
)

FoldT = TypeVar("FoldT", bound=Callable[[SearchState, Any], SearchState])
FOLDS: dict[type, Callable[[SearchState, Any], SearchState]] = {}
"""How each kind of fact changes the state; `evolve` adds those of the search."""


def folds_in(kind: type[Fact]) -> Callable[[FoldT], FoldT]:
    """Register a fold."""

    def register(fold: FoldT) -> FoldT:
        FOLDS[kind] = fold
        return fold

    return register


@folds_in(SearchOpened)
def _opened(state: SearchState, fact: SearchOpened) -> SearchState:
    opened = replace(
        state,
        run_id=fact.run_id,
        task_id=fact.task_id,
        target=fact.target,
        settings=fact.settings,
        seed=fact.seed,
        initial_id=fact.initial_id,
        lineup=fact.lineup,
        arms=arms_of(fact.lineup),
        status="running",
    )
    return put_node(opened, root_node())


@folds_in(SearchReopened)
def _reopened(state: SearchState, fact: SearchReopened) -> SearchState:
    lineup = fact.lineup or state.lineup
    return replace(
        _released(_carried_over(state)),
        settings=replace(state.settings, budget=fact.budget),
        lineup=lineup,
        arms=arms_of(lineup, state.arms),
        status="running",
        paused=False,
        stopped_by=None,
        stop_detail="",
        losses=0,
        idle_attempts=0,
        dry=False,
        lost_calls=state.lost_calls + fact.lost_calls,
    )


@folds_in(SpendRecorded)
def _spend_recorded(state: SearchState, fact: SpendRecorded) -> SearchState:
    state = replace(state, cost_usd=state.cost_usd + (fact.cost_usd or 0.0))
    if fact.role == "planner":
        state = with_rate(state, fact.model, fact.prompt_bytes, fact.usage)
        usage, planner_s = state.usage_planner.plus(fact.usage), state.planner_s + fact.latency_s
        return replace(state, usage_planner=usage, planner_s=planner_s)
    arms = with_usage(state.arms, fact.model, fact.usage)
    return replace(state, usage_coder=state.usage_coder.plus(fact.usage), arms=arms)


@folds_in(TimeNoted)
def _time_noted(state: SearchState, fact: TimeNoted) -> SearchState:
    return replace(state, elapsed_s=fact.elapsed_s)


@folds_in(RunStopping)
def _stopping(state: SearchState, fact: RunStopping) -> SearchState:
    return replace(state, status="stopping", stopped_by=fact.stopped_by, stop_detail=fact.detail)


@folds_in(RunPaused)
def _paused(state: SearchState, _fact: RunPaused) -> SearchState:
    return replace(state, paused=True)


@folds_in(RunContinued)
def _continued(state: SearchState, _fact: RunContinued) -> SearchState:
    return replace(_released(state), paused=False)


def _carried_over(state: SearchState) -> SearchState:
    for job_id, job in list(state.jobs.items()):
        if not job.withheld and not job.reopened:
            state = put(state, "jobs", job_id, replace(job, reopened=True))
    return state


def _released(state: SearchState) -> SearchState:
    for job_id, job in list(state.jobs.items()):
        if job.withheld:
            state = put(state, "jobs", job_id, replace(job, withheld=False))
    return state


@folds_in(RunFinished)
def _finished(state: SearchState, fact: RunFinished) -> SearchState:
    return replace(state, status="finished", stopped_by=fact.stopped_by, stop_detail=fact.detail)
