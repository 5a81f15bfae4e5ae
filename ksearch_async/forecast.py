"""What a search will ask for, said before it is started: calls, prompts, and what an earlier run took.

Only what is known: how long answers get and how often a candidate repeats an earlier one shows when they come.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

import msgspec

from actors.coder.prompts import request_for
from actors.llm.base import Request
from actors.llm.tokens import estimated_tokens
from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from actors.planner.prompts import plan_request
from ksearch_async.config import load_config
from ksearch_async.runs import list_runs, open_chronicle
from messages.base import Usage
from messages.commands import WriteCandidate
from messages.errors import BusError, ConfigError
from messages.events import RunStarted
from messages.settings import SearchSettings
from messages.tasks import Action, Target, TaskSpec

_LOOKED_AT = 20
"""Runs of a folder, the latest first."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Calls and prompts of a run that is not started."""

    coder_calls: int
    """At least: one per evaluation; answers that repeat a candidate or hold none come on top."""
    planner_calls: tuple[int, int]
    """From, to about: a branch takes about as many attempts as the stagnation window, and its end is told in a call."""
    coder_prompt_tokens: int
    """Of the first call, at four characters a token; later ones hold the best code, and logs of what failed."""
    planner_prompt_tokens: int | None
    """Of the first call; null if the planner's model is never asked."""


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier run of the same task on a machine like this took."""

    run: str
    rounds: int
    branches: int
    elapsed_s: float
    usage: Usage
    usage_planner: Usage = Usage()
    usage_coder: Usage = Usage()
    model: str | None
    """Null: the built-in rules."""
    models: tuple[str | None, str | None, str | None] = (None, None, None)
    """As they were named: for both roles, for who plans, for who writes."""

    @property
    def round_s(self) -> float:
        """Wall-clock per round, models and evaluations together."""
        return self.elapsed_s / self.rounds


def forecast(started: RunStarted) -> Forecast:
    """Say what a run that began so would ask of models. Asks none."""
    settings = started.settings
    state = SearchState()
    for fact in decide(state, started):
        state = evolve(state, fact)
    plan = plan_request(state, state.plan, started.description) if state.plan else None
    budget = settings.budget
    most = [limit for limit in (budget.max_rounds, budget.max_calls) if limit is not None]
    return Forecast(
        coder_calls=min(most),
        planner_calls=_planner_calls(settings, min(most)),
        coder_prompt_tokens=_tokens(request_for(_first_write(started))),
        planner_prompt_tokens=_tokens(plan) if plan else None,
    )


def earlier_run(runs_dir: Path, task: TaskSpec, target: Target) -> Earlier | None:
    """Return the latest run of this task on a machine like this; runs that cannot be read are passed over."""
    for folder in list_runs(runs_dir)[:_LOOKED_AT]:
        try:
            config, chronicle = load_config(folder.config), open_chronicle(folder)
        except (BusError, ConfigError):
            continue
        started, state = chronicle.started, chronicle.state
        same = started and (started.task.task_id, started.target.fingerprint) == (task.task_id, target.fingerprint)
        if same and state.rounds:
            return Earlier(
                run=folder.run_id,
                rounds=state.rounds,
                branches=state.settings.branches,
                elapsed_s=chronicle.elapsed_s,
                usage=state.usage,
                usage_planner=state.usage_planner,
                usage_coder=state.usage_coder,
                model=config.model.name,
                models=(config.model.name, config.model.planner.name, config.model.coder.name),
            )
    return None


def _planner_calls(settings: SearchSettings, rounds: int) -> tuple[int, int]:
    match settings.world_model:
        case "off":
            return 0, 0
        case "frozen":
            return 1, 1 + settings.refusals
        case "evolving":
            return 1, 1 + ceil(rounds / settings.stagnation_window)


def _first_write(started: RunStarted) -> WriteCandidate:
    description = started.description
    return WriteCandidate(
        job_id="forecast",
        run_id="forecast",
        branch_id="b1",
        language=description.language,
        mode="apply",
        target=started.target,
        edit_format=started.lineup.coder("").edit_format or started.settings.edit_format,
        task=description,
        action=Action(node_id="n1", title="", description="", difficulty=1),
    )


def _tokens(request: Request) -> int:
    return estimated_tokens(request.system) + estimated_tokens(request.prompt)
