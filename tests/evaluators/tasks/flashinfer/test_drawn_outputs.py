"""What draws and picks are right: each alone, and all of them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch

from evaluators.judge.data.draws import Draws
from evaluators.tasks.flashinfer import drawn_inputs
from evaluators.tasks.flashinfer.drawn_outputs import outside, positions, wrong_indices, wrong_picks

ROWS, TOKENS, CALLS = 32, 1024, 64
Sampler: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of what is left of each row (rows, tokens), and random numbers of each call (calls, rows), tokens of each call."""


def filtered(probs: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return what is left of each row, written another way than the check has it."""
    left = probs.double().clone()
    for row in range(len(left)):
        order = left[row].argsort(descending=True)
        left[row, order[int(top_k[row]) :]] = 0.0
        left[row] /= left[row].sum()
        total = 0.0
        for token in order.tolist():
            mass = float(left[row, token])
            left[row, token] = mass if total <= float(top_p[row]) else 0.0
            total += mass
    return left / left.sum(dim=1, keepdim=True)


def by_inverse(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    ends = left.cumsum(dim=1)
    found = torch.searchsorted(ends, chance.T.contiguous() * ends[:, -1:], right=True).T
    return found.clamp(max=left.shape[1] - 1)


def tempered(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    return by_inverse(left**2, chance)


def alike(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    return by_inverse((left > 0).double(), chance)


def likeliest(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    return left.argmax(dim=1).expand(len(chance), -1)


def sharing_rows(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    return by_inverse(left, chance[:, :1].expand_as(chance))


def sharing_calls(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    return by_inverse(left, chance[:1].expand_as(chance))


def without_half_of_the_tokens(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    halved = left.clone()
    halved[:, TOKENS // 2 :] = 0.0
    is_empty = halved.sum(dim=1) == 0
    halved[is_empty] = left[is_empty]
    return by_inverse(halved, chance)


def without_half_of_the_lanes(left: torch.Tensor, chance: torch.Tensor) -> torch.Tensor:
    halved = left.clone()
    halved[:, torch.arange(TOKENS) % 32 >= 16] = 0.0
    is_empty = halved.sum(dim=1) == 0
    halved[is_empty] = left[is_empty]
    return by_inverse(halved, chance)


def said_of(sampler: Sampler, seed: int) -> str:
    """Return what is said of a sampler: of its calls alone, else of all of them together."""
    torch.manual_seed(seed)
    draws = Draws()
    for _ in range(2):
        probs = drawn_inputs.probabilities((ROWS, TOKENS), torch.float32)
        top_k = drawn_inputs.sizes((ROWS,), 1, TOKENS, torch.int32)
        top_p = drawn_inputs.parts((ROWS,), torch.float32)
        samples = sampler(filtered(probs, top_k, top_p), torch.rand(CALLS, ROWS, dtype=torch.float64))
        for call in samples[:3]:
            assert outside(probs, call, top_k=top_k, top_p=top_p) == ""
        draws.add(positions(probs, samples, top_k=top_k, top_p=top_p))
    return draws.complaint()


@pytest.mark.parametrize("seed", range(3))
def test_right_draws_are_not_complained_of(seed: int) -> None:
    assert said_of(by_inverse, seed) == ""


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (likeliest, "by probability,"),
        (alike, "by probability,"),
        (tempered, "by probability,"),
        (sharing_rows, "two rows"),
        (sharing_calls, "two calls"),
        (without_half_of_the_tokens, "by index,"),
        (without_half_of_the_lanes, "by lane,"),
    ],
)
def test_draws_from_another_distribution_are_told_by_what_they_lack(sampler: Sampler, said: str) -> None:
    complaint = said_of(sampler, seed=0)
    assert "not drawn as the reference's" in complaint
    assert said in complaint


def test_too_few_draws_say_nothing() -> None:
    draws = Draws()
    draws.add({"probability": torch.zeros(1, 16, dtype=torch.float64)})
    assert draws.complaint() == ""
    draws.add({"probability": torch.zeros(3, 16, dtype=torch.float64)})
    assert "64 draws" in draws.complaint()


PROBS = torch.tensor([[0.1, 0.4, 0.2, 0.2, 0.1, 0.0]])


@pytest.mark.parametrize(
    ("token", "top_k", "top_p", "said"),
    [
        (1, 1, None, ""),
        (2, 1, None, "number 2 by probability, and top_k is 1"),
        (3, 2, None, ""),  # as likely as the other one at the border
        (0, 3, None, "number 4"),
        (0, 0, None, ""),  # no k
        (5, None, None, "the probability 0"),
        (6, None, None, "is no token"),
        (-1, None, None, "is no token"),
        (1, None, 0.0, ""),
        (2, None, 0.0, "top_p is 0"),
        (3, None, 0.45, ""),
        (0, None, 0.45, "0.800000 of the mass"),
        (0, None, 1.0, ""),
        (2, 1, 1.0, "top_k"),
        # Of the two that top_k leaves, the first has two thirds.
        (2, 2, 0.5, "0.666667 of the mass"),
        (2, 2, 0.7, ""),
    ],
)
def test_a_token_may_be_drawn_only_if_top_k_and_then_top_p_leave_it(
    token: int, top_k: int | None, top_p: float | None, said: str
) -> None:
    options = {
        "top_k": None if top_k is None else torch.tensor([top_k]),
        "top_p": None if top_p is None else torch.tensor([top_p]),
    }
    found = outside(PROBS, torch.tensor([token]), **options)
    assert said in found
    assert bool(found) == bool(said)


SCORES = torch.tensor([5.0, 1.0, 4.0, 3.0, 3.0 - 1e-9], dtype=torch.float64)
PLACES = torch.tensor([70, 10, 20, 30, 40])


@pytest.mark.parametrize(
    ("picked", "said"),
    [
        ([70, 20, 30], ""),
        ([30, 70, 20], ""),
        ([40, 70, 20], ""),  # within rounding of the border
        ([70, 20, 20], "named twice"),
        ([70, 20, 10], "below the border"),
        ([20, 30, 40], "70 is left out"),
        ([70, 20, -1], "2 places are named, and 3 are asked for"),
        ([70, 20, 50], "50 is no place of this row"),
    ],
)
def test_picks_are_the_largest_in_any_order(picked: list[int], said: str) -> None:
    found = wrong_picks(SCORES, PLACES, torch.tensor(picked), torch.full((5,), 1e-6, dtype=torch.float64))
    assert said in found
    assert bool(found) == bool(said)


def test_fewer_scores_than_picks_are_filled_up_with_minus_one() -> None:
    slack = torch.zeros(2, dtype=torch.float64)
    assert wrong_picks(SCORES[:2], PLACES[:2], torch.tensor([10, 70, -1]), slack) == ""
    assert "before the end" in wrong_picks(SCORES[:2], PLACES[:2], torch.tensor([10, -1, 70]), slack)
    assert "1 places" in wrong_picks(SCORES[:2], PLACES[:2], torch.tensor([10, -1, -1]), slack)


def test_an_indexers_keys_are_unpacked_by_page_with_the_scales_behind_them() -> None:
    torch.manual_seed(0)
    pages, page_size, width = 6, 8, 16
    packed = drawn_inputs.packed_keys((pages, page_size, 1, width + 4))
    queries = drawn_inputs.normal((2, 4, width), torch.float8_e4m3fn)
    weights, lengths = torch.randn(2, 4), torch.tensor([19, 30])
    table = torch.stack([torch.randperm(pages)[:4] for _ in range(2)]).int()
    picks = torch.full((2, 5), -1)
    for row in range(2):
        scores: dict[int, float] = {}
        for at in range(int(lengths[row])):
            page, place = int(table[row, at // page_size]), at % page_size
            raw = packed[page].view(torch.uint8).reshape(-1)
            key = raw[place * width : (place + 1) * width].view(torch.float8_e4m3fn).float()
            begin = page_size * width + 4 * place
            scale = float(raw[begin : begin + 4].clone().view(torch.float32))
            products = (queries[row].float() @ key).relu() * scale
            scores[page * page_size + place] = float((products * weights[row]).sum())
        picks[row] = torch.tensor(sorted(scores, key=lambda place: -scores[place])[:5])
    assert wrong_indices(queries, packed, weights, lengths, table, picks) == ""
    picks[1, 0] = picks[1, 1]
    assert wrong_indices(queries, packed, weights, lengths, table, picks) == "row 1: a place is named twice"
