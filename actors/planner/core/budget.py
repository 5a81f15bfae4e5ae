"""The remaining budget of a run, and which model may be asked within it.

Calls, tokens and money are checked before each question, with the expected cost of the question and of those in flight:
the mean of the role's (or model's) answers so far. Longer answers may exceed a limit. The very first question is asked
regardless of the token limit. If there are several coder models, those that no longer fit are skipped.
"""

from __future__ import annotations

from actors.planner.core.arms import TYPICAL, choose, mean_usage
from actors.planner.core.state import SearchState
from messages.base import Usage, copied
from messages.events import CandidateWritten, EditsProposed
from messages.facts import SpendRecorded, StoppedBy, WriteRequested
from messages.models import Lineup, Offer

_ANY = Offer()


def written_spend(
    state: SearchState, request: WriteRequested, written: CandidateWritten, node_id: str
) -> SpendRecorded:
    """Return the cost of a coder's answer."""
    cost_usd = _cost_usd(state.lineup.coder(request.model), written.usage)
    model = request.model or written.model
    return copied(SpendRecorded, written, role="coder", model=model, node_id=node_id, cost_usd=cost_usd)


def _cost_usd(offer: Offer, usage: Usage) -> float | None:
    return offer.price.of(usage) if offer.price is not None else None


def proposed_spend(state: SearchState, proposed: EditsProposed) -> SpendRecorded:
    """Return the cost of an answer of the planner's model."""
    cost_usd = _cost_usd(state.lineup.planner, proposed.usage)
    return copied(SpendRecorded, proposed, role="planner", cost_usd=cost_usd)


def is_priced(lineup: Lineup) -> bool:
    """Return True if the price of every model is known."""
    return all(offer.price is not None for offer in (lineup.planner, *(lineup.coders or (_ANY,))))


def spent_usd(state: SearchState) -> float:
    """Return the cost of the run; answers lost with a session count at the mean cost."""
    if not state.lost_calls:
        return state.cost_usd
    offer = _coders(state)[0]
    mean = state.cost_usd / state.usage.calls if state.usage.calls else _cost(offer, _coder_usage(state, offer.name))
    return state.cost_usd + state.lost_calls * mean


def used_up(state: SearchState) -> tuple[StoppedBy, str] | None:
    """Return the limit that ends the run and its usage; None if the run may continue."""
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
    """Return True if one more attempt fits into the budget, counting all those in flight as evaluations."""
    if rounds_left(state) <= 0:
        return False
    return _calls_left(state) and bool(_affordable(state))


def rounds_left(state: SearchState) -> int:
    """Return how many evaluations fit into the budget in addition to those in flight."""
    under_way = sum(len(branch.jobs) for branch in state.branches.values())
    return state.settings.budget.max_rounds - state.rounds - under_way


def may_ask_planner(state: SearchState) -> bool:
    """Return True if one more call for edits fits into the budget."""
    return _calls_left(state) and _fits(state, _planner_usage(state), state.lineup.planner)


def is_overcommitted(state: SearchState) -> bool:
    """Return True if the questions in flight are expected to cost more than the remaining budget."""
    limit = state.settings.budget.max_calls
    if limit is not None and state.calls + len(state.questions) > limit:
        return True
    return _is_limited(state) and not _is_within(state, *_committed(state))


def next_model(state: SearchState) -> str:
    """Return the coder model to ask now; empty if there is only one."""
    if not state.arms:
        return ""
    offers = _affordable(state) or state.lineup.coders  # asked again after a loss: it was affordable once
    return choose(offers, state.lineup, state.arms, seed=state.seed, counter=state.issued)


def _calls_left(state: SearchState) -> bool:
    limit = state.settings.budget.max_calls
    return limit is None or state.calls + len(state.questions) < limit


def _coders(state: SearchState) -> tuple[Offer, ...]:
    return state.lineup.coders or (_ANY,)


def _affordable(state: SearchState) -> tuple[Offer, ...]:
    return tuple(offer for offer in _coders(state) if _fits(state, _coder_usage(state, offer.name), offer))


def _fits(state: SearchState, usage: Usage, offer: Offer) -> bool:
    if not _is_limited(state):
        return True
    is_first = not state.calls and not state.questions
    tokens, cost_usd = _committed(state)
    return _is_within(state, 0 if is_first else tokens + usage.tokens, cost_usd + _cost(offer, usage))


def _committed(state: SearchState) -> tuple[int, float]:
    tokens, cost_usd = state.usage.tokens, spent_usd(state)
    for question in state.questions:
        asked, whom = _planner_usage(state), state.lineup.planner
        if isinstance(question, WriteRequested):
            asked, whom = _coder_usage(state, question.model), state.lineup.coder(question.model)
        tokens, cost_usd = tokens + asked.tokens, cost_usd + _cost(whom, asked)
    return tokens, cost_usd


def _is_within(state: SearchState, tokens: int, cost_usd: float) -> bool:
    budget = state.settings.budget
    return (budget.max_tokens is None or tokens <= budget.max_tokens) and (
        budget.max_cost_usd is None or cost_usd <= budget.max_cost_usd
    )


def _planner_usage(state: SearchState) -> Usage:
    return mean_usage(state.usage_planner) or TYPICAL


def _coder_usage(state: SearchState, model: str) -> Usage:
    own = next((arm.usage for arm in state.arms if arm.name == model), state.usage_coder)
    return mean_usage(own) or mean_usage(state.usage_coder) or TYPICAL


def _cost(offer: Offer, usage: Usage) -> float:
    return _cost_usd(offer, usage) or 0.0


def _out_of_reach(state: SearchState) -> tuple[StoppedBy, str] | None:
    """Return the limit that leaves no room for another answer, once no question is in flight."""
    if not _is_limited(state) or state.questions or _affordable(state):
        return None
    budget = state.settings.budget
    tokens = min(_coder_usage(state, offer.name).tokens for offer in _coders(state))
    if budget.max_tokens is not None and state.usage.tokens + tokens > budget.max_tokens:
        return "tokens", f"{state.usage.tokens} of {budget.max_tokens}, and an answer takes about {tokens}"
    cost_usd = min(_cost(offer, _coder_usage(state, offer.name)) for offer in _coders(state))
    limit = budget.max_cost_usd or 0.0
    return "cost", f"${spent_usd(state):.4f} of ${limit:g}, and an answer costs about ${cost_usd:.4f}"


def _is_limited(state: SearchState) -> bool:
    budget = state.settings.budget
    return budget.max_tokens is not None or budget.max_cost_usd is not None
