"""Which tasks can tell a kernel from an answer that computes nothing, and what their outputs depend on."""

from __future__ import annotations

import pytest

from evaluators.judge.intake.examining import examine
from evaluators.judge.reference.problem import Problem
from messages.tasks import Intake, TaskSpec, Tolerance
from tests.evaluators.judge.kernels import MASKED, NORM, SOFTMAX, SQUARE, task

ALWAYS_ZERO = task("return x.clamp(max=0).clamp(0, 1)", "torch.rand(16, 32)")
NOISE = task("return F.group_norm(x, 4).mean(dim=(1, 2, 3))", "torch.rand(8, 16, 16, 16)")
CONSTANT = task("return x.softmax(dim=-1).sum(dim=-1)", "torch.randn(64, 32)")
PASSES_THROUGH = task("return F.relu(x)", "torch.rand(16, 32)")
WITH_IDLE_TENSORS = task(
    "return x * self.weight + 0 * more[0]",
    "torch.randn(16, 32), torch.ones(16, 32)",
    init="self.weight = torch.nn.Parameter(torch.ones(32)); self.idle = torch.nn.Parameter(torch.ones(3))",
)
WITHOUT_INPUTS = task("return x", "").text.replace("def forward(self, x, *more)", "def forward(self, x=torch.ones(3))")
INDEXED = task("return more[1][more[0]] * x", "torch.randn(8, 32), torch.arange(8), torch.randn(8, 32)")
GATED = task("return x * more[0]", "torch.randn(8, 32), torch.ones(8, 32)")


def found(spec: TaskSpec, profile: str = "strict") -> Intake:
    tolerance = Tolerance(profile=profile)
    return examine(Problem(spec), tolerance)


@pytest.mark.parametrize("spec", [SOFTMAX, NORM, SQUARE, MASKED], ids=lambda spec: spec.name)
def test_an_ordinary_task_is_fit(spec: TaskSpec) -> None:
    intake = found(spec)
    assert (intake.fitness, intake.findings) == ("fit", ())
    assert all(one.matters for one in intake.influences)
    assert not any(answer.passes for answer in intake.answers)
    assert intake.reference_us is not None


@pytest.mark.parametrize(
    ("spec", "trivial"),
    [
        (ALWAYS_ZERO, {"zeros", "the output for other inputs"}),
        # The rounding of other inputs is another: by chance beyond what is allowed for these.
        (NOISE, {"zeros", "the mean everywhere"}),
        (CONSTANT, {"the output for other inputs", "the mean everywhere"}),
    ],
    ids=["zero", "noise", "constant"],
)
def test_a_task_that_needs_no_computing_is_refused_with_evidence(spec: TaskSpec, trivial: set[str]) -> None:
    intake = found(spec)
    assert intake.fitness == "refused"
    passing = {answer.name for answer in intake.answers if answer.passes}
    assert trivial <= passing
    assert any("passes every check" in finding for finding in intake.findings)


def test_an_output_of_nothing_but_rounding_is_named() -> None:
    assert any("to rounding in float32" in finding for finding in found(NOISE).findings)


def test_a_task_without_inputs_is_refused() -> None:
    intake = found(TaskSpec(name="t", source="kernelbench", text=WITHOUT_INPUTS))
    assert intake.fitness == "refused"
    assert "no inputs" in intake.findings[0]


def test_an_answer_that_is_right_on_the_given_inputs_only_marks_the_task() -> None:
    intake = found(PASSES_THROUGH)
    assert intake.fitness == "marked"
    assert any(finding.startswith("input x: right on the inputs that the task draws") for finding in intake.findings)


def test_tensors_that_do_nothing_are_named() -> None:
    intake = found(WITH_IDLE_TENSORS)
    assert intake.fitness == "marked"
    assert {one.tensor for one in intake.influences if not one.matters} == {"idle", "input1"}
    assert any("do not depend on input1, idle" in finding for finding in intake.findings)


def test_a_mask_that_is_always_of_ones_is_tried_with_zeros() -> None:
    influence = {one.tensor: one for one in found(GATED).influences}
    assert influence["input1"].matters
    assert 0.2 < influence["input1"].moved_share < 0.8


def test_integers_that_every_draw_has_alike_are_left_alone() -> None:
    influence = {one.tensor: one for one in found(INDEXED).influences}
    assert influence["input1"].matters is None
    assert "every draw has the same" in influence["input1"].why_not
    assert influence["input2"].matters


def test_a_loose_profile_can_make_a_task_unfit() -> None:
    small = task("return x.softmax(dim=-1)", "torch.rand(8, 4096)")
    assert found(small).fitness == "fit"
    loose = found(small, "flashinfer")
    assert loose.fitness != "fit"
    assert loose.tolerance == "flashinfer"
    assert any(finding.startswith("zeros:") for finding in loose.findings)


def test_what_is_the_same_in_every_call_marks_the_task() -> None:
    intake = found(task("return x[more[0]]", "torch.randn(8, 32), torch.arange(4)"))
    assert intake.fitness == "marked"
    assert "input1 has the same value in every call: a kernel that never reads it would pass" in intake.findings
    assert found(task("return x / more[0]", "torch.randn(8, 32), torch.tensor(2.0)")).fitness == "fit"


def test_state_that_the_reference_changes_marks_the_task() -> None:
    intake = found(task("return self.norm(x)", "torch.randn(8, 32)", init="self.norm = torch.nn.BatchNorm1d(32)"))
    assert intake.fitness == "marked"
    changed = "the reference changes norm.running_mean, norm.running_var, norm.num_batches_tracked in each call"
    assert any(finding.startswith(changed) for finding in intake.findings)
