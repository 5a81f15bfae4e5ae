from __future__ import annotations

import pytest
import torch

from evaluators.judge.reference.problem import share_parameters


@pytest.mark.parametrize("trains", [True, False])
def test_a_baseline_follows_what_its_state_is_made_and_keeps_what_it_may_change_itself(trains: bool) -> None:
    model = torch.nn.BatchNorm1d(3).train(trains)
    weight, bias, mean, variance = (torch.full((3,), value) for value in (2.0, 1.0, 0.5, 4.0))
    state = (weight, bias, mean, variance, torch.tensor(0))
    share_parameters(model, state)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        first = model(x)
        weight.fill_(6.0)
        scaled = model(x)
        mean.fill_(-0.5)
        moved = model(x)
    assert torch.allclose((scaled - 1.0) / 6.0, (first - 1.0) / 2.0, atol=1e-5)
    assert torch.equal(moved, scaled) is trains
    assert float(mean[0]) == -0.5
