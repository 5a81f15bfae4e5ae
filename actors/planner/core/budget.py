"""What a run may still spend, and so whether a model may be asked, and which.

Before each question calls, tokens and money are looked at, with what is expected of the questions under way and of the
one that is to be asked: the mean of the role's (of several coder models: the model's) answers so far. An answer may be
longer than that, so the last ones can exceed a limit by what they are longer; none is asked that is expected to. Only
the first question of all is asked whatever the limit of tokens: nothing else tells how long answers are.
Where several coder models are left to choose from, those that no longer fit drop out: the cheap ones use up the rest.
"""

from __future__ import annotations

from actors.planner.core.arms import TYPICAL, choose, mean_usage
from actors.planner.core.state import SearchState
from messages.base import Usage
from messages.events import CandidateWritten, EditsProposed
from messages.facts import PlanRequested, SpendRecorded, StoppedBy, WriteRequested
from messages.models import Lineup, Offer

_ANY = Offer()


def written_spend(
    state: SearchState, request: WriteRequested, written: CandidateWritten, node_id: str
) -> SpendRecorded:
    """Return what a coder's answer cost."""
    price = state.lineup.coder(request.model).price
    return SpendRecorded(
        role="coder",
        usage=written.usage,
        model=request.model or written.model,
        node_id=node_id,
        cost_usd=price.of(written.usage) if price is not None else None,
        latency_s=written.latency_s,
    )


def proposed_spend(state: SearchState, proposed: EditsProposed) -> SpendRecorded:
    """Return what an answer of the planner's model cost."""
    price = state.lineup.planner.price
    return SpendRecorded(
        role="planner",
        usage=proposed.usage,
        model=proposed.model,
        cost_usd=price.of(proposed.usage) if price is not None else None,
        latency_s=proposed.latency_s,
        prompt_bytes=proposed.prompt_bytes,
    )


def is_priced(lineup: Lineup) -> bool:
    """Say whether the price of every model is known."""
    return all(offer.price is not None for offer in (lineup.planner, *(lineup.coders or (_ANY,))))


def spent_usd(state: SearchState) -> float:
    """Return what the run has cost; answers that were lost with a session count at the mean, likely billed."""
    if not state.lost_calls:
        return state.cost_usd
    mean = state.cost_usd / state.usage.calls if state.usage.calls else _usual_cost(state, _coders(state)[0])
    return state.cost_usd + state.lost_calls * mean


def used_up(state: SearchState) -> tuple[StoppedBy, str] | None:
    """Return which limit ends the run, and how far it is used; None if the run may go on."""
    budget = state.settings.budget
    limits: tuple[tuple[StoppedBy, float, float | None], ...] = (
        ("rounds", state.rounds, budget.max_rounds),
        ("target", state.incumbent.credit if state.incumbent else 0.0, budget.target_speedup),
        ("calls", state.calls, budget.max_calls),
        ("tokens", state.usage.tokens, budget.max_tokens),
        ("cost", spent_usd(state), budget.max_cost_usd),
        ("wall_clock", state.elapsed_s, budget.wall_clock_s),
    )
    for stopped_by, used, limit in limits:
        if limit is not None and used >= limit:
            return stopped_by, f"{used:g} of {limit:g}"
    if state.idle_attempts >= state.settings.max_idle_attempts:
        return "exhausted", f"{state.idle_attempts} attempts in a row brought nothing to evaluate"
    return _out_of_reach(state)


def may_ask_coder(state: SearchState) -> bool:
    """Say whether one more attempt fits into the budget, if all that are under way turn out to be evaluations."""
    if rounds_left(state) <= 0:
        return False
    return _calls_left(state) and bool(_affordable(state))


def rounds_left(state: SearchState) -> int:
    """Return how many evaluations fit into the budget besides all that are under way."""
    under_way = sum(len(branch.jobs) for branch in state.branches.values())
    return state.settings.budget.max_rounds - state.rounds - under_way


def may_ask_planner(state: SearchState) -> bool:
    """Say whether one more call for edits fits into the budget."""
    return _calls_left(state) and _fits(state, _planner_usage(state), state.lineup.planner)


def is_overcommitted(state: SearchState) -> bool:
    """Say whether the questions under way are more than the budget pays for: some were lost, and are asked again."""
    limit = state.settings.budget.max_calls
    if limit is not None and state.calls + len(state.questions) > limit:
        return True
    return _is_limited(state) and not _is_within(state, *_committed(state))


def next_model(state: SearchState) -> str:
    """Return which coder model is to be asked now; empty where there is one."""
    if not state.arms:
        return ""
    offers = _affordable(state) or state.lineup.coders  # asked again after a loss: it was affordable once
    return choose(offers, state.lineup, state.arms, seed=state.seed, counter=state.issued)


def _calls_left(state: SearchState) -> bool:
    """Say whether one more question fits into the budget of calls: those under way will be paid for, too."""
    limit = state.settings.budget.max_calls
    return limit is None or state.calls + len(state.questions) < limit


def _coders(state: SearchState) -> tuple[Offer, ...]:
    return state.lineup.coders or (_ANY,)


def _affordable(state: SearchState) -> tuple[Offer, ...]:
    return tuple(offer for offer in _coders(state) if _fits(state, _coder_usage(state, offer.name), offer))


def _fits(state: SearchState, usage: Usage, offer: Offer) -> bool:
    """Say whether an answer is expected to fit into tokens and money, along with those under way."""
    if not _is_limited(state):
        return True
    is_first = not state.calls and not state.questions
    tokens, cost_usd = _committed(state)
    return _is_within(state, 0 if is_first else tokens + usage.tokens, cost_usd + _cost(offer, usage))


def _committed(state: SearchState) -> tuple[int, float]:
    """Return tokens and dollars that are spent, and are expected of the questions under way."""
    tokens, cost_usd = state.usage.tokens, spent_usd(state)
    for question in state.questions:
        asked, whom = _expected(state, question)
        tokens, cost_usd = tokens + asked.tokens, cost_usd + _cost(whom, asked)
    return tokens, cost_usd


def _is_within(state: SearchState, tokens: int, cost_usd: float) -> bool:
    budget = state.settings.budget
    return (budget.max_tokens is None or tokens <= budget.max_tokens) and (
        budget.max_cost_usd is None or cost_usd <= budget.max_cost_usd
    )


def _expected(state: SearchState, question: WriteRequested | PlanRequested) -> tuple[Usage, Offer]:
    if isinstance(question, PlanRequested):
        return _planner_usage(state), state.lineup.planner
    return _coder_usage(state, question.model), state.lineup.coder(question.model)


def _planner_usage(state: SearchState) -> Usage:
    return mean_usage(state.usage_planner) or TYPICAL


def _coder_usage(state: SearchState, model: str) -> Usage:
    own = next((arm.usage for arm in state.arms if arm.name == model), state.usage_coder)
    return mean_usage(own) or mean_usage(state.usage_coder) or TYPICAL


def _cost(offer: Offer, usage: Usage) -> float:
    return offer.price.of(usage) if offer.price is not None else 0.0


def _usual_cost(state: SearchState, offer: Offer) -> float:
    return _cost(offer, _coder_usage(state, offer.name))


def _out_of_reach(state: SearchState) -> tuple[StoppedBy, str] | None:
    """Return which limit no further answer fits under, once nothing is under way."""
    if not _is_limited(state) or state.questions or _affordable(state):
        return None
    budget = state.settings.budget
    tokens = min(_coder_usage(state, offer.name).tokens for offer in _coders(state))
    if budget.max_tokens is not None and state.usage.tokens + tokens > budget.max_tokens:
        return "tokens", f"{state.usage.tokens} of {budget.max_tokens}, and an answer takes about {tokens}"
    cost_usd = min(_usual_cost(state, offer) for offer in _coders(state))
    limit = budget.max_cost_usd or 0.0
    return "cost", f"${spent_usd(state):.4f} of ${limit:g}, and an answer costs about ${cost_usd:.4f}"


def _is_limited(state: SearchState) -> bool:
    budget = state.settings.budget
    return budget.max_tokens is not None or budget.max_cost_usd is not None
