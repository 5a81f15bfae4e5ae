"""Recorded calls are made anew with a candidate's functions."""

from __future__ import annotations

import torch

from evaluators.tasks.tritonbench.replay import make_calls
from evaluators.tasks.tritonbench.tracing import Call


def test_what_the_gold_leaves_unwritten_is_the_same_whatever_a_candidate_leaves_there() -> None:
    unwritten = torch.tensor([False, True, False])
    calls: list[Call] = [
        {
            "function": "f",
            "arguments": (torch.ones(3),),
            "options": {},
            "writes": (),
            "unwritten": [(0, unwritten)],
            "seed": None,
        }
    ]
    for left in (5.0, float("nan")):
        (found,) = make_calls(  # type: ignore[no-untyped-call]
            calls, {"f": lambda x, left=left: torch.where(unwritten, left, 2 * x)}
        )
        assert found.tolist() == [2.0, 0.0, 2.0]
