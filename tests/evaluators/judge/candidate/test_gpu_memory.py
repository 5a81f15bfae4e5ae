"""Too little memory on a GPU: whose fault it is, and that nothing is skipped for it. The errors are those of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from evaluators.judge.candidate.candidate import HostError
from evaluators.judge.candidate.gpu_memory import within_memory
from evaluators.judge.data.families import CENTRED, GIVEN, CheckData
from evaluators.judge.data.memory import Room
from evaluators.judge.protocol import Judged, Passed
from evaluators.judge.reference.problem import NoMemoryError, Problem, ProblemError, called
from messages.tasks import Tolerance
from messages.verdicts import Crashed
from tests.evaluators.judge.kernels import task

PASSED = Passed(checks=(), reference_dtype="float64", notes=())
HUNGRY = Judged(
    verdict=Crashed(reason="OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB (main.py:2)", stage="call")
)
SEGFAULT = Judged(verdict=Crashed(reason="its process died of SIGSEGV (call)", stage="call"))
JUDGE_HAS_NONE = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

Answer = Passed | Judged


def as_before(less: bool) -> None:
    assert not less


def answers(*given: Answer | Exception) -> tuple[Callable[[], Answer], list[Answer | Exception]]:
    """Return what gives or raises these in turn, and those that it has not come to."""
    left = [*given]

    def judge() -> Answer:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return judge, left


@pytest.mark.parametrize("answer", [PASSED, SEGFAULT], ids=["passed", "crashed"])
def test_an_answer_that_has_nothing_to_do_with_memory_stands_and_nothing_is_given_up(answer: Answer) -> None:
    judge, left = answers(answer, PASSED)
    assert within_memory(judge, lambda: pytest.fail("given up"), as_before, lambda: True) is answer
    assert left == [PASSED]


@pytest.mark.parametrize("first", [HUNGRY, JUDGE_HAS_NONE, NoMemoryError("")], ids=["candidate", "judge", "reference"])
def test_what_is_kept_for_later_candidates_is_given_up_before_one_is_judged_again(first: Answer | Exception) -> None:
    judge, left = answers(first, PASSED)
    kept, told = ["data"], list[bool]()
    assert within_memory(judge, lambda: bool(kept.pop()), told.append, lambda: True) is PASSED
    assert (kept, left, told) == ([], [], [True])


def test_a_candidate_that_finds_too_little_in_any_case_costs_later_ones_nothing_that_is_kept_for_them() -> None:
    judge, left = answers(HUNGRY, HUNGRY)
    assert within_memory(judge, lambda: True, as_before, lambda: True) is HUNGRY
    assert left == []


def test_a_room_that_shrinks_below_what_was_taken_is_full_until_that_is_given_back() -> None:
    room = Room(100)
    assert room.take(80)
    room.reopen(halved=True)
    assert not room.take(1)
    room.give_back(80)
    assert not room.take(51)
    assert room.take(50)


def test_of_a_room_that_is_closed_nothing_is_taken() -> None:
    room = Room(100)
    room.close()
    assert not room.take(1)
    room.reopen(halved=False)
    assert room.take(100)


def test_a_candidate_that_finds_none_where_nothing_was_kept_has_crashed() -> None:
    judge, left = answers(HUNGRY, PASSED)
    assert within_memory(judge, lambda: False, as_before, lambda: True) is HUNGRY
    assert left == [PASSED]


def test_a_candidate_that_leaves_the_judge_too_little_twice_has_crashed() -> None:
    judge, _ = answers(JUDGE_HAS_NONE, NoMemoryError(""))
    answer = within_memory(judge, lambda: True, as_before, lambda: True)
    assert isinstance(answer, Judged)
    assert isinstance(answer.verdict, Crashed)
    assert "nearly all of the GPU's memory" in answer.verdict.reason


def test_where_there_is_too_little_without_the_candidate_too_the_host_is_at_fault() -> None:
    judge, _ = answers(JUDGE_HAS_NONE, JUDGE_HAS_NONE)
    with pytest.raises(HostError, match="other processes"):
        within_memory(judge, lambda: True, as_before, lambda: False)


def test_a_reference_without_memory_is_not_taken_for_one_that_fails() -> None:
    with pytest.raises(NoMemoryError):
        called("the reference", lambda: (_ for _ in ()).throw(JUDGE_HAS_NONE))
    with pytest.raises(ProblemError, match="raises RuntimeError: singular") as caught:
        called("the reference", lambda: (_ for _ in ()).throw(RuntimeError("singular")))
    assert not isinstance(caught.value, NoMemoryError)


@pytest.mark.parametrize("is_wide", [False, True], ids=["in its own dtype", "in float64"])
def test_no_family_is_left_out_and_no_precision_lost_for_want_of_memory(
    monkeypatch: pytest.MonkeyPatch, *, is_wide: bool
) -> None:
    """Else a candidate that takes all of it would be checked on less, and so would those after it."""
    data = CheckData(Problem(task("return x * 2", "torch.rand(8, 32)")), Tolerance(), drawn=0, extra_s=0.0)
    multiply = torch.Tensor.__mul__

    def lacking(one: torch.Tensor, other: float) -> torch.Tensor:
        if other == 2 and (one.dtype == torch.float64) == is_wide:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return multiply(one, other)

    sets: Iterator[str] = (one.family for one in data.sets())
    assert next(sets) == GIVEN
    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "__mul__", lacking)
        with pytest.raises(NoMemoryError):
            next(sets)
    assert (data.skipped, data.reference_dtype) == ({}, "float64")
    assert [one.family for one in data.sets()][:2] == [GIVEN, CENTRED]
