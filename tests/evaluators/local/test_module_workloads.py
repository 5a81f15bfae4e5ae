"""Modules of a task with several workloads: an instance of each in one process, real judges."""

from __future__ import annotations

import textwrap

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.judge.check.wrong import HELD_OUT
from evaluators.local import LocalEvaluator
from messages.tasks import Target, TaskSpec, Workload
from messages.verdicts import Crashed, Measured, Outpaced, Unstable, Wrong, workload_lines
from tests.evaluators.judging import Judging
from tests.evaluators.languages.python.words import module

pytestmark = pytest.mark.anyio

CORRECT = (Measured, Outpaced, Unstable)
"""How steady its time can be told depends on the host's other work."""
SHOWN = {"few", "many"}
"""The cheaper one comes first: which that is depends on the host's other work."""
OWN_PROCESS = "in a process of its own it is right there"

SHAPES = TaskSpec(
    name="module_shapes",
    source="kernelbench",
    text=textwrap.dedent("""
        import time
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self, columns, scale):
                super().__init__()
                self.weight = nn.Parameter(scale * torch.linspace(0.5, 1.5, columns))

            def forward(self, x):
                time.sleep(0.004)
                return x * self.weight / (1 + x.abs().mean(dim=-1, keepdim=True))

        def get_inputs(rows, columns):
            return [torch.rand(rows, columns)]

        def get_init_inputs(columns, scale):
            return [columns, scale]
    """),
    workloads=(
        Workload(name="few", dimensions={"rows": 8, "columns": 64, "scale": 1}),
        Workload(name="many", dimensions={"rows": 96, "columns": 64, "scale": 3}),
        Workload(name="odd", dimensions={"rows": 37, "columns": 61, "scale": 2}, hidden=True),
    ),
)
"""The weights of the workloads that are shown have one shape, and other values."""

ALIKE = replace(
    SHAPES,
    workloads=(
        Workload(name="few", dimensions={"rows": 8, "columns": 64, "scale": 1}),
        Workload(name="many", dimensions={"rows": 96, "columns": 64, "scale": 1}),
    ),
)
"""Models of the same arguments, so of the same weights, but for those that the judge makes up."""

RIGHT = """
import time
import torch
from torch import nn

kept = {}
made = []


class ModelNew(nn.Module):
    def __init__(self, columns, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        self.given = scale * torch.linspace(0.5, 1.5, columns)
        made.append(self)
        # made

    def forward(self, x):
        weight = self.weight
        # before
        mean = x.abs() / x.shape[1]
        while mean.shape[1] > 1:
            if mean.shape[1] % 2:
                mean = torch.cat((mean, torch.zeros_like(mean[:, :1])), dim=1)
            mean = mean[:, ::2] + mean[:, 1::2]
        return x * weight / (1 + mean)
"""


def before(*lines: str) -> str:
    """The right module, with statements before its work."""
    return RIGHT.replace("# before", "\n        ".join(lines))


@pytest.fixture(scope="module")
def target() -> Target:
    return probe_target("python")


@pytest.fixture(scope="module")
def judge(builder: LocalBuilder, evaluator: LocalEvaluator, target: Target) -> Judging:
    return Judging(builder, evaluator, target, module)


@pytest.mark.long
async def test_a_right_module_is_checked_and_timed_on_each_workload(judge: Judging) -> None:
    verdict = await judge(RIGHT, SHAPES, purpose="confirm")
    assert isinstance(verdict, CORRECT), verdict
    if isinstance(verdict, Measured):
        assert {line.split(":")[0] for line in workload_lines(verdict)} == SHOWN
        with_other_weights = {check.workload for check in verdict.checks if check.family == "perturbed parameters"}
        assert with_other_weights == SHOWN | {HELD_OUT}


@pytest.mark.parametrize("which", ["is_given", "not is_given"], ids=["the task's weights", "other weights"])
async def test_one_process_serves_all_workloads_with_one_set_of_weights(judge: Judging, which: str) -> None:
    verdict = await judge(
        before(
            "is_given = torch.equal(weight, self.given)",
            f"if {which} and len(made) == 2:",
            "    raise ValueError('2 in one process')",
        ),
        replace(SHAPES, workloads=SHAPES.shown),
        purpose="confirm",
    )
    assert isinstance(verdict, Crashed), verdict
    assert "ValueError: 2 in one process" in verdict.reason
    assert verdict.workload in SHOWN
    assert OWN_PROCESS in verdict.reason


async def test_what_a_module_keeps_from_one_workload_and_gives_on_another_is_wrong_and_said(judge: Judging) -> None:
    verdict = await judge(before("weight = kept.setdefault(0, weight)"), SHAPES)
    assert isinstance(verdict, Wrong), verdict
    assert verdict.workload in SHOWN
    assert OWN_PROCESS in verdict.reason


@pytest.mark.long
async def test_what_it_keeps_by_shape_is_right(judge: Judging) -> None:
    verdict = await judge(before("weight = kept.setdefault(x.shape, weight)"), SHAPES)
    assert isinstance(verdict, CORRECT), verdict


async def test_what_is_wrong_on_one_workload_in_any_process_is_not_said_to_be_kept(judge: Judging) -> None:
    costly = SHAPES.text.replace("time.sleep(0.004)", "time.sleep(0.08 if len(x) == 96 else 0.002)")
    verdict = await judge(before("if len(x) == 96: weight = weight + 1"), replace(SHAPES, text=costly))
    assert isinstance(verdict, Wrong), verdict
    assert verdict.workload == "many"
    assert OWN_PROCESS not in verdict.reason


async def test_what_fits_one_workload_until_the_next_is_called_is_wrong(judge: Judging) -> None:
    verdict = await judge(
        before(
            "space = kept.setdefault(0, torch.zeros(64))",
            "if not hasattr(self, 'mine'): self.mine = space.copy_(weight)",
            "weight = self.mine",
        ),
        SHAPES,
    )
    assert isinstance(verdict, Wrong), verdict
    assert verdict.workload in SHOWN
    assert "it was right here before it was called on other workloads" in verdict.reason


async def test_the_state_that_an_instance_was_given_stays_its_own(judge: Judging) -> None:
    """Also for one that keeps the very tensors that it was given, where other workloads' lie in between."""
    keeps = "lambda own, given, *_: setattr(own, 'taken', given['weight'])"
    text = before("weight = self.taken").replace("# made", f"self.register_load_state_dict_pre_hook({keeps})")
    verdict = await judge(text, SHAPES)
    assert isinstance(verdict, CORRECT), verdict


async def test_weights_that_it_knew_before_it_was_given_any_are_wrong(judge: Judging) -> None:
    verdict = await judge(before("weight = self.given"), SHAPES)
    assert isinstance(verdict, Wrong), verdict
    assert verdict.family == "perturbed parameters"
    assert OWN_PROCESS not in verdict.reason


async def test_the_first_weights_kept_for_all_instances_are_wrong_where_those_differ(judge: Judging) -> None:
    verdict = await judge(before("weight = kept.setdefault(0, weight)"), ALIKE, purpose="confirm")
    assert isinstance(verdict, Wrong), verdict
    assert verdict.family == "perturbed parameters"
    assert OWN_PROCESS in verdict.reason


async def test_a_module_that_is_slow_on_one_shape_is_outpaced_by_the_mean_and_says_where(judge: Judging) -> None:
    verdict = await judge(before("if len(x) == 8: time.sleep(0.03)"), SHAPES, keep_above=5.0)
    assert isinstance(verdict, Outpaced), verdict
    assert {line.split(":")[0] for line in workload_lines(verdict)} == SHOWN


async def test_a_hidden_shape_refutes_a_module_for_the_shown_ones_and_is_not_told(judge: Judging) -> None:
    verdict = await judge(before("if len(x) not in (8, 96): weight = weight + 1"), SHAPES, purpose="confirm")
    assert isinstance(verdict, Wrong), verdict
    assert "held-out" in verdict.reason
    assert (verdict.workload, verdict.elements, verdict.first_wrong) == ("", 0, ())
    assert not any(word in str(verdict) for word in ("37", "61", "odd"))


async def test_what_a_module_has_seen_of_a_hidden_shape_it_cannot_tell_in_the_next_process(judge: Judging) -> None:
    """There it is called on the shown ones first; a file in its cache could have told it on a GPU."""
    tells = before(
        "if made[0].given.shape == weight.shape and not torch.equal(weight, self.given): raise OSError(len(made))"
    )
    verdict = await judge(tells, SHAPES, purpose="confirm")
    assert isinstance(verdict, Crashed), verdict
    assert "held-out" in verdict.reason
    assert verdict.log == ""
