"""What a run is, as its lenses get it: told once, and again when it goes on with another budget."""

from __future__ import annotations

from ksearch_async.chronicle import Chronicle
from ksearch_async.feed.shapes import Head
from messages.events import RunStarted
from messages.models import Lineup


def head_of(chronicle: Chronicle, started: RunStarted, *, first_at: str | None) -> Head:
    """Return what a run is, as it goes on now."""
    state = chronicle.state
    settings = state.settings if state.run_id else started.settings
    budget, bound, target = settings.budget, chronicle.roofline(), started.target
    return Head(
        run_id=started.run_id,
        task=started.task.name,
        task_id=started.task.task_id,
        language=started.description.language,
        device=target.device,
        toolchain=target.toolchain,
        started_at=first_at or (chronicle.last_at.isoformat() if chronicle.last_at else ""),
        seed=started.seed,
        scored=started.initial is not None,
        branches=settings.branches,
        world_model=settings.world_model,
        max_rounds=budget.max_rounds,
        max_seconds=budget.wall_clock_s,
        max_calls=budget.max_calls,
        max_tokens=budget.max_tokens,
        max_cost_usd=budget.max_cost_usd,
        target_speedup=budget.target_speedup,
        models=model_names(state.lineup if state.run_id else started.lineup),
        roofline_us=bound.time_us if bound else None,
        roofline_limited_by=bound.limited_by if bound else "",
        workloads=tuple(workload.name for workload in started.description.workloads),
        summary=state.summary,
    )


def model_names(lineup: Lineup) -> tuple[str, ...]:
    """Return the names of a run's models, each once, the planner's first."""
    offers = (lineup.planner, *lineup.coders)
    return tuple(dict.fromkeys(offer.name for offer in offers if offer.name))
