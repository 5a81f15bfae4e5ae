from __future__ import annotations

import msgspec

from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from messages.codec import Body, decode_body, encode
from messages.facts import Decided, Fact, TimeNoted


def _read_again(fact: Fact) -> Fact:
    body: Body = decode_body(encode(Decided(cause=1, facts=(fact,))))
    assert isinstance(body, Decided)
    return body.facts[0]


def test_readers_of_one_process_share_the_fold_of_a_fact() -> None:
    fact = TimeNoted(elapsed_s=3.0)
    first = evolve(SearchState(), fact)
    assert evolve(SearchState(), _read_again(fact)) is first
    other = evolve(SearchState(), TimeNoted(elapsed_s=4.0))
    assert (first.elapsed_s, other.elapsed_s) == (3.0, 4.0)


def test_states_that_only_look_new_are_folded_as_they_are() -> None:
    state = msgspec.structs.replace(SearchState(), seed=7)
    assert evolve(state, TimeNoted(elapsed_s=3.0)).seed == 7
