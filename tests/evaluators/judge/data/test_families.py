"""Data sets of a task: which families it is checked on, what they hold, and what is mixed into timed calls."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch

from evaluators.judge.data.distributions import ADVERSARIAL, FAR_ABOVE, FAR_BELOW
from evaluators.judge.data.families import (
    CENTRED,
    CHECKS,
    CONSTANTS,
    GIVEN,
    NEARLY_EQUAL,
    NEARLY_EQUAL_PARAMETERS,
    PERTURBED,
    SPIKES,
    CheckData,
    DataMaker,
    DataSet,
    TimedData,
)
from evaluators.judge.intake.examining import wrong_share
from evaluators.judge.reference.problem import Problem
from evaluators.judge.time.gpu import POLICIES as GPU_POLICIES
from evaluators.judge.time.sampling import POLICIES
from messages.tasks import TaskSpec, Tolerance
from tests.evaluators.judge.kernels import MASKED, NORM, SOFTMAX, task

INDEXED = task("return more[1][more[0]] * x", "torch.randn(8, 32), torch.randint(0, 4, (8,)), torch.randn(4, 32)")
GATED = task("return x * more[0]", "torch.randn(8, 32), torch.ones(8, 32)")
LOGARITHM = task("return x.log()", "torch.rand(8, 32) + 0.5")
ARGMAX = task("return x.argmax(dim=-1)", "torch.randn(8, 32)")
FACTORISED = task("return torch.linalg.cholesky(x)", "torch.rand(6, 6) * 0.1 + 9 * torch.eye(6)")
COUNTED = task("return x + 1", "torch.randint(0, 9, (8, 32))")


def maker(spec: TaskSpec) -> DataMaker:
    return DataMaker(Problem(spec), Tolerance())


def checks(spec: TaskSpec, **how: float) -> list[DataSet]:
    return list(CheckData(Problem(spec), Tolerance(), **how).sets())  # type: ignore[arg-type]


def test_every_candidate_gets_the_cheap_families_first_and_others_drawn_for_it() -> None:
    data = CheckData(Problem(NORM), Tolerance(), drawn=2, extra_s=0.0)
    first, second, third = ([each.family for each in data.sets()] for _ in range(3))
    assert first[:4] == second[:4] == list(CHECKS[:4])
    assert first[-1] == second[-1] == PERTURBED
    assert first[4] == FAR_BELOW
    assert len(first) == 8
    drawn = [set(families[5:-1]) for families in (first, second, third)]
    assert all(families <= ADVERSARIAL.keys() - {SPIKES, FAR_BELOW} for families in drawn)
    seen = [frozenset(each.family for each in data.sets()) for _ in range(8)]
    assert len(set(seen)) > 1, "the choice is the same for every candidate"


def test_small_tasks_are_checked_on_all_families() -> None:
    families = {each.family for each in checks(NORM, extra_s=60.0)}
    assert families == {GIVEN, CENTRED, PERTURBED, *ADVERSARIAL}


def test_integers_and_masks_are_never_changed() -> None:
    made = maker(INDEXED)
    for family in ADVERSARIAL:
        assert int(made.bare(family, 1).inputs[1].max()) < 4
        assert torch.equal(made.bare(family, 1).inputs[1], made.bare(GIVEN, 1).inputs[1])
    gated = maker(GATED)
    assert torch.equal(gated.bare("scaled up", 1).inputs[1], torch.ones(8, 32))
    mask = gated.bare("sparse", 1).inputs[1]
    assert set(mask.flatten().tolist()) == {0.0, 1.0}


def test_a_task_of_integers_is_checked_on_given_data_alone() -> None:
    assert {each.family for each in checks(COUNTED, extra_s=60.0)} == {GIVEN}


def test_families_where_the_reference_is_not_finite_are_skipped_and_named() -> None:
    made = maker(LOGARITHM)
    assert made.make(CENTRED) is None
    assert made.skipped == {CENTRED: "the reference is not finite there"}
    assert not made.applies(CENTRED)
    assert made.make("scaled up") is not None


def test_families_on_which_the_reference_fails_are_skipped_and_named() -> None:
    made = maker(FACTORISED)
    assert made.make(GIVEN) is not None
    assert made.make("all negative") is None
    assert "the reference fails there" in made.skipped["all negative"]
    assert not made.applies("all negative")


def test_families_where_rounding_decides_the_result_are_skipped_and_named() -> None:
    made = maker(task("return (x - x.mean(dim=-1, keepdim=True)).sign()", "torch.randn(8, 32)"))
    assert made.make("constant") is None
    assert "rounding alone moves the result" in made.skipped["constant"]


def test_data_with_ties_is_not_for_outputs_that_are_indices() -> None:
    made = maker(ARGMAX)
    assert not made.applies("sorted with ties")
    assert not made.applies("constant")
    assert made.applies(SPIKES)


def test_a_seed_and_a_family_say_a_data_set() -> None:
    made = maker(NORM)
    for family in (GIVEN, PERTURBED, *ADVERSARIAL):
        one, other = made.bare(family, 77), made.bare(family, 77)
        assert all(map(torch.equal, (*one.inputs, *one.state), (*other.inputs, *other.state)))


def test_a_reference_that_masks_is_checked_on_given_data_where_it_has_infinities() -> None:
    families = [each.family for each in checks(MASKED, extra_s=60.0)]
    assert families == [GIVEN, GIVEN]


def test_data_far_from_zero_keeps_its_spread() -> None:
    x, offsets = torch.randn(64, 256), set()
    for seed in range(16):
        for family, sign in ((FAR_ABOVE, 1), (FAR_BELOW, -1)):
            moved = ADVERSARIAL[family](x, torch.Generator().manual_seed(seed))
            offsets.add(round(float(moved.mean()) * sign, -2))
            assert abs(float(moved.std()) - 1.0) < 0.05
    assert offsets == {100.0, 1000.0}


def variance_in_one_pass(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x * x).mean(-1, keepdim=True) - mean * mean).sqrt()


def variance_in_two_passes(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred * centred).mean(-1, keepdim=True).sqrt()


def softmax_from_zero(x: torch.Tensor) -> torch.Tensor:
    exponentials = (x - x.amax(-1, keepdim=True).clamp(min=0.0)).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def softmax_in_order(x: torch.Tensor) -> torch.Tensor:
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    return exponentials / exponentials.cumsum(-1)[..., -1:]


NORMALISED = task(
    "return x.sub(x.mean(-1, True)) / x.var(-1, correction=0, keepdim=True).sqrt()", "torch.randn(64, 512)"
)
SOFTENED = task("return x.softmax(-1)", "torch.randn(64, 512)")
Candidate = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(
    ("spec", "honest", "trick"),
    [(NORMALISED, variance_in_two_passes, variance_in_one_pass), (SOFTENED, softmax_in_order, softmax_from_zero)],
    ids=["variance", "softmax"],
)
def test_shortcuts_for_data_around_zero_are_wrong_far_below_it(
    spec: TaskSpec, honest: Candidate, trick: Candidate
) -> None:
    made = maker(spec)
    given, far = made.given(), [made.make(FAR_BELOW) for _ in range(4)]
    assert wrong_share((trick(given.inputs[0]),), given) == 0.0
    for data in far:
        assert data is not None
        assert wrong_share((trick(data.inputs[0]),), data) > 0.0
        assert wrong_share((honest(data.inputs[0]),), data) == 0.0


def test_softmax_in_half_precision_is_checked_far_below_zero() -> None:
    data = maker(task("return x.softmax(-1)", "torch.randn(64, 512).bfloat16()")).make(FAR_BELOW)
    assert data is not None
    trick, honest = (run(data.inputs[0].float()).bfloat16() for run in (softmax_from_zero, softmax_in_order))
    assert wrong_share((trick,), data) > 0.0
    assert wrong_share((honest,), data) == 0.0


TEMPERED = task("return x / more[0]", "torch.randn(8, 32), torch.tensor(2.0)")
KEPT_MASK = task(
    "return x.masked_fill(~more[0], 0.0)", "torch.randn(8, 32), torch.arange(32).lt(20).expand(8, 32).contiguous()"
)
ALL_MASKED = task(
    "return (x.masked_fill(more[0], float('-inf'))).softmax(-1)",
    "torch.randn(8, 1), torch.zeros(8, 1, dtype=torch.bool)",
)


@pytest.mark.parametrize("spec", [TEMPERED, KEPT_MASK], ids=["temperature", "mask"])
def test_what_is_the_same_in_every_draw_gets_other_values_in_a_check(spec: TaskSpec) -> None:
    data = [each for each in checks(spec) if each.family == CONSTANTS]
    assert len(data) == 1
    drawn = maker(spec).bare(GIVEN, 1).inputs[1]
    assert not torch.equal(data[0].inputs[1], drawn)
    never_read = maker(spec).problem.reference((data[0].inputs[0], drawn), ())
    assert wrong_share(never_read, data[0]) > 0.0


def test_what_the_reference_bears_no_other_value_of_is_named() -> None:
    data = CheckData(Problem(ALL_MASKED), Tolerance())
    assert CONSTANTS not in {each.family for each in data.sets()}
    assert data.never_varied == ("input1",)
    counted = CheckData(Problem(task("return x[more[0]]", "torch.randn(8, 32), torch.arange(4)")), Tolerance())
    assert counted.never_varied == ("input1",)
    varied = CheckData(Problem(TEMPERED), Tolerance())
    assert [varied.never_varied, len(list(varied.sets())) > 1, varied.never_varied] == [(), True, ()]


TIMED_AT_LEAST = min(policy.min_pairs for policy in POLICIES.values())


@pytest.mark.parametrize("spec", [SOFTMAX, NORM], ids=lambda spec: spec.name)
def test_half_of_the_timed_data_is_adversarial_and_every_kind_is_timed(
    spec: TaskSpec,
) -> None:
    data = TimedData(Problem(spec), Tolerance())
    data.prepare(64)
    families = [data.next().family for _ in range(64)]
    assert 30 <= sum(family != GIVEN for family in families) <= 34
    kinds = {GIVEN, SPIKES, NEARLY_EQUAL, CENTRED, *((PERTURBED, NEARLY_EQUAL_PARAMETERS) if spec is NORM else ())}
    for begin in range(len(families) - TIMED_AT_LEAST):
        assert set(families[begin : begin + TIMED_AT_LEAST]) == kinds


def test_of_a_module_every_kind_is_among_as_few_calls_as_one_of_several_workloads_gets_on_a_gpu() -> None:
    data = TimedData(Problem(NORM), Tolerance(), same_state=True)
    data.prepare(64)
    families, fewest = [data.next().family for _ in range(64)], GPU_POLICIES["screen"].min_pairs_of_several
    for begin in range(len(families) - fewest):
        assert set(families[begin : begin + fewest]) == {GIVEN, SPIKES, NEARLY_EQUAL, CENTRED}


def test_what_is_taken_apart_is_not_among_what_comes() -> None:
    data = TimedData(Problem(NORM), Tolerance())
    data.prepare(24)
    apart = data.apart()
    assert apart.family == GIVEN
    assert apart.seed not in {data.next().seed for _ in range(24)}


def test_timed_data_for_modules_never_has_other_parameters() -> None:
    data = TimedData(Problem(NORM), Tolerance(), same_state=True)
    data.prepare(64)
    assert not {PERTURBED, NEARLY_EQUAL_PARAMETERS} & {data.next().family for _ in range(64)}


def test_no_candidate_is_timed_on_what_the_one_before_it_saw_but_for_what_the_reference_computed() -> None:
    data = TimedData(Problem(NORM), Tolerance())
    data.prepare(24)
    seen = [data.next() for _ in range(16)]
    data.prepare(24)
    again = {each.seed for each in seen} & {data.next().seed for _ in range(24)}
    assert again
    assert {each.family for each in seen if each.seed in again} <= {SPIKES, CENTRED, PERTURBED}
    assert {GIVEN, NEARLY_EQUAL} <= {each.family for each in seen}


def test_a_candidate_whose_pairs_are_run_again_gets_other_data_of_all_kinds() -> None:
    data = TimedData(Problem(NORM), Tolerance())
    data.prepare(16)
    seen = {data.next().seed for _ in range(12)}
    data.replace(16)
    again = [data.next() for _ in range(16)]
    assert not seen & {each.seed for each in again}
    assert {GIVEN, SPIKES, NEARLY_EQUAL, CENTRED, PERTURBED} <= {each.family for each in again}


@pytest.mark.parametrize("is_hurried", [False, True])
def test_whose_pairs_are_run_again_gets_all_kinds_however_long_they_take_and_who_is_timed_again_those_there_is_time_for(
    *, is_hurried: bool
) -> None:
    data = TimedData(Problem(NORM), Tolerance(), share=2000)  # room for twelve sets, 250 us to compute some
    data.prepare(12)
    for _ in range(12):
        data.next()
    data.replace(12, is_hurried=is_hurried)
    computed = sum(data.next().family in {SPIKES, CENTRED, PERTURBED} for _ in range(12))
    assert computed <= 2 if is_hurried else computed >= 3


def test_however_often_a_candidate_is_timed_no_more_data_is_kept_than_one_timing_takes() -> None:
    data = TimedData(Problem(NORM), Tolerance())
    served: list[weakref.ref[DataSet]] = []
    for _ in range(5):
        data.replace(16)
        served += [weakref.ref(data.next()) for _ in range(40)]
    gc.collect()
    kept = sum(each() is not None for each in served)
    assert 40 <= kept <= 41, "the last timing's, and what data nearly equal to it is made of"


def test_parameters_nearly_equal_to_an_earlier_calls_differ_in_one_tensor_by_two_elements_at_most() -> None:
    problem = Problem(NORM)
    maker = DataMaker(problem, Tolerance())
    base = maker.given()
    for _ in range(8):
        near = maker.nearly(base, NEARLY_EQUAL_PARAMETERS)
        moved = [int((new != old).sum()) for new, old in zip(near.state, base.state, strict=True)]
        assert sorted(moved)[-1] in {1, 2}
        assert sum(moved) == max(moved)
        assert all(new is old for new, old in zip(near.inputs, base.inputs, strict=True))


def test_timed_data_beyond_what_is_prepared_is_adversarial_as_well() -> None:
    data = TimedData(Problem(SOFTMAX), Tolerance())
    families = [data.next().family for _ in range(32)]
    assert 14 <= families.count(NEARLY_EQUAL) <= 17


@pytest.mark.parametrize(
    ("mode", "moves"), [("F.dropout(self.norm(x), 0.5, self.training)", True), ("self.norm(x)", False)]
)
def test_statistics_of_a_new_model_move_in_eval_mode_as_training_would_have_moved_them(
    *, mode: str, moves: bool
) -> None:
    problem = Problem(task(f"return {mode}", "torch.randn(64, 32)", init="self.norm = torch.nn.BatchNorm1d(32)"))
    data = DataMaker(problem, Tolerance()).make(PERTURBED)
    assert data is not None
    state = dict(zip(problem.state_names, zip(data.state, problem.state, strict=True), strict=True))
    for name in ("norm.running_mean", "norm.running_var"):
        new, old = state[name]
        assert bool((new != old).any()) is moves
    assert bool((state["norm.running_var"][0] > 0).all())
    assert torch.equal(*state["norm.num_batches_tracked"])


@pytest.mark.parametrize("buffer", ["torch.ones(32, 8).T", "torch.zeros(8, dtype=torch.int64)", "torch.zeros(0)"])
def test_buffers_that_are_called_like_statistics_may_be_anything(buffer: str) -> None:
    init = f"self.weight = torch.nn.Parameter(torch.ones(32)); self.register_buffer('running_mean', {buffer})"
    problem = Problem(task("return F.dropout(x * self.weight, 0.5, self.training)", "torch.randn(8, 32)", init=init))
    assert not problem.trains
    assert DataMaker(problem, Tolerance()).make(PERTURBED) is not None


def test_timed_data_of_a_module_has_one_and_the_same_state() -> None:
    """Its process is started anew for another, which takes longer than many calls."""
    data = TimedData(Problem(NORM), Tolerance(), same_state=True)
    states = []
    for _ in range(2):
        data.prepare(8)
        states += [data.next().state for _ in range(24)]
    assert all(state is states[0] for state in states)


@pytest.mark.parametrize("family", [NEARLY_EQUAL, NEARLY_EQUAL_PARAMETERS])
def test_data_nearly_equal_to_an_earlier_call_changes_the_result_beyond_the_tolerance(family: str) -> None:
    problem = Problem(NORM)
    maker = DataMaker(problem, Tolerance())
    base = maker.given()
    for _ in range(8):
        near = maker.nearly(base, family)
        now, then = (problem.reference(each.inputs, each.state)[0] for each in (near, base))
        assert near.allowed[0].accepts_beside(now.clone(), now)
        assert not near.allowed[0].accepts_beside(then, now)


def test_spikes_in_timed_data_widen_the_tolerance_in_their_rows_only() -> None:
    problem = Problem(NORM)
    made = DataMaker(problem, Tolerance())
    data = made.make(SPIKES)
    assert data is not None
    eager = problem.reference(data.inputs, data.state)[0]
    row = int(data.inputs[0].amax(dim=-1).argmin())
    wrong = eager.clone()
    wrong[row] *= 1.001
    assert data.allowed[0].accepts_beside(eager.clone(), eager)
    assert not data.allowed[0].accepts_beside(wrong, eager)


def test_a_tolerance_that_grows_lets_sums_of_a_lower_precision_through_on_all_data() -> None:
    """Sorted data takes a running sum far from zero and back: near its end, an absolute error is all there is.

    torch.cumsum in float32 was off by 108 in 2^28 elements (H200): eight roundings of the largest sum of sorted ones.
    """
    there_and_back = "(lambda x: torch.cat((x, -x)))(torch.randn(1 << 17))"
    problem = Problem(task("return x.double().cumsum(0)", there_and_back))
    sums = DataMaker(problem, Tolerance(profile="gpumode:1e-5,1e-5,sqrt"))
    given, away = sums.make(GIVEN), sums.make("sorted with ties")
    assert given is not None
    assert away is not None, sums.skipped
    lost = 8 * torch.finfo(torch.float32).eps * away.expected[0].abs().max()
    assert not away.allowed[0].errors(away.expected[0] + lost, away.expected[0]).wrong.any()
    one_late = given.expected[0].roll(1)
    assert given.allowed[0].errors(one_late, given.expected[0]).wrong.any()
