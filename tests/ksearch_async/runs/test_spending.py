"""What a run's models cost by role, model and action, added up from its journal."""

from __future__ import annotations

from ksearch_async.runs.run import PriceOf, Run, Spending
from messages.base import Usage
from messages.codec import Record
from messages.events import RunResumed
from messages.facts import Decided, NodeInserted, SpendRecorded
from messages.models import Lineup, Offer, Price
from tests.ksearch_async.stories import story

ANSWER = Usage(calls=1, prompt_tokens=1000, cached_tokens=400, completion_tokens=500, reasoning_tokens=200)
PRICE = Price(input_usd=10.0, cached_usd=1.0, output_usd=100.0)


def journal() -> list[Record]:
    facts = (
        NodeInserted(node_id="n9", parent_id="n0", title="Fuse", description="", difficulty=1, priority=0.5),
        SpendRecorded(role="planner", usage=ANSWER, model="large", cost_usd=0.5, latency_s=9.0),
        SpendRecorded(role="coder", usage=ANSWER, model="small", node_id="n9", cost_usd=0.01, latency_s=2.0),
        SpendRecorded(role="coder", usage=ANSWER, model="small", node_id="n9", cost_usd=0.02, latency_s=3.0),
        SpendRecorded(role="coder", usage=ANSWER, model="new", node_id="n2"),
    )
    return [Record(seq=1, at="2026-01-31T12:00:00+00:00", msg_id="d1", body=Decided(cause=0, facts=facts))]


def spending_of(records: list[Record], price_of: PriceOf | None = None) -> Spending:
    return Run.of([*story()[:2], *records]).spending(price_of)


def test_money_and_tokens_are_kept_by_role_and_model_and_by_action() -> None:
    found = spending_of(journal())
    small = found.by_model["coder", "small"]
    assert (small.usage.calls, small.usage.reasoning_tokens, small.latencies_s) == (2, 400, (2.0, 3.0))
    assert small.known_usd == 0.03
    assert found.by_node["n9"].known_usd == 0.03
    assert found.titles["n9"] == "Fuse"
    assert found.of_role("planner").known_usd == 0.5


def test_one_answer_without_a_price_leaves_the_sum_unknown() -> None:
    found = spending_of(journal())
    assert found.by_model["coder", "new"].known_usd is None
    assert found.of_role("coder").known_usd is None
    assert found.of_role("coder").cost_usd == 0.03


def test_other_prices_count_it_again_and_leave_models_that_they_do_not_name() -> None:
    found = spending_of(journal(), lambda model: PRICE if model == "new" else None)
    assert found.by_model["coder", "new"].known_usd == PRICE.of(ANSWER)
    assert found.by_model["coder", "small"].known_usd == 0.03


def test_models_that_were_never_asked_cost_nothing_and_are_there() -> None:
    lineup = Lineup(planner=Offer(name="large"), coders=(Offer(name="small"), Offer(name="idle"), Offer(name="new")))
    opening = Record(seq=0, at="2026-01-31T12:00:00+00:00", msg_id="o", body=RunResumed(run_id="r", lineup=lineup))
    found = spending_of([opening, *journal()])
    assert found.by_model["coder", "idle"].known_usd == 0.0
    assert set(found.by_model) - set(spending_of(journal()).by_model) == {("coder", "idle")}
    assert set(spending_of([opening]).by_model) == {
        ("planner", "large"),
        ("coder", "small"),
        ("coder", "idle"),
        ("coder", "new"),
    }


def test_one_model_that_answers_by_another_name_is_not_told_twice() -> None:
    lineup = Lineup(planner=Offer(name="large-latest"), coders=(Offer(name="new-latest"),))
    opening = Record(seq=0, at="2026-01-31T12:00:00+00:00", msg_id="o", body=RunResumed(run_id="r", lineup=lineup))
    assert set(spending_of([opening, *journal()]).by_model) == set(spending_of(journal()).by_model)
