"""What still changes after an answer is seen, wherever it stands."""

from __future__ import annotations

import pytest
import torch

from evaluators.judge.check.wrong import WrongOutputError, refuse_if_unfinished
from evaluators.judge.data.memory import Glimpse


def looked(outputs: tuple[torch.Tensor, ...]) -> Glimpse:
    glimpse = Glimpse()
    glimpse.draw(outputs)
    glimpse.take()
    return glimpse


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.bool])
def test_of_a_small_output_every_element_is_looked_at(dtype: torch.dtype) -> None:
    outputs = (torch.zeros(4, 8, dtype=dtype),)
    glimpse = looked(outputs)
    assert glimpse.changed() == (0, 32)
    outputs[0][3, 7] = 1
    assert glimpse.changed() == (1, 32)


def test_of_a_large_output_some_elements_are_looked_at_and_others_each_time() -> None:
    output = torch.zeros(1 << 20)
    glimpse = looked((output,))
    output[: 1 << 19] = 1
    changed, looked_at = glimpse.changed()
    assert looked_at == 256
    assert 64 < changed < 192
    before = [places.clone() for places in glimpse._places]
    glimpse.draw((output,))
    assert not torch.equal(before[0], glimpse._places[0])


def test_an_element_in_a_hundred_that_is_left_for_later_is_seen_within_some_calls() -> None:
    output = torch.zeros(1 << 20)
    glimpse = Glimpse()
    seen = 0
    for _ in range(12):
        glimpse.draw((output,))
        output[-(1 << 20) // 100 :] = 0
        glimpse.take()
        output[-(1 << 20) // 100 :] = 1
        seen += glimpse.changed()[0] > 0
    assert seen >= 6


def test_a_nan_that_stays_the_same_has_not_changed_and_another_one_has() -> None:
    output = torch.full((8,), float("nan"))
    glimpse = looked((output,))
    assert glimpse.changed() == (0, 8)
    output.view(torch.int32)[2] ^= 1
    assert glimpse.changed() == (1, 8)


def test_several_outputs_and_none_of_size_zero_are_looked_at() -> None:
    outputs = (torch.zeros(1000), torch.zeros(0), torch.zeros(1000, dtype=torch.int64), torch.zeros(()))
    glimpse = looked(outputs)
    outputs[3].fill_(2)
    assert glimpse.changed()[0] == 1


def test_a_call_whose_outputs_change_after_its_answer_is_refused() -> None:
    outputs = (torch.zeros(16),)
    glimpse = looked(outputs)
    refuse_if_unfinished(glimpse, "given")
    outputs[0][:4] = 1
    with pytest.raises(WrongOutputError, match="not finished when it answered: 4 of 16 elements") as raised:
        refuse_if_unfinished(glimpse, "given")
    assert raised.value.verdict.patterns == ("late or kept",)


def test_before_the_first_look_nothing_has_changed() -> None:
    glimpse = Glimpse()
    assert glimpse.changed() == (0, 0)
