"""Tasks that a trick would pass are not taken on."""

from __future__ import annotations

import pytest

from ksearch_async.evaluation.tasks import check_fitness, marks_of
from messages.base import ConfigError
from messages.tasks import Fitness, Intake, TaskDescription


def described(fitness: Fitness | None) -> TaskDescription:
    intake = None if fitness is None else Intake(fitness=fitness, findings=("zeros: passes",), tolerance="flashinfer")
    return TaskDescription(
        task_id="1", name="t", language="cpp", tensors=(), prompt="", entry_point="", bytes_moved=0, intake=intake
    )


def test_a_refused_task_is_refused_with_its_evidence_and_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"'t' cannot tell a kernel .*: zeros: passes") as refused:
        check_fitness(described("refused"), allow_trivial=False)
    assert "--allow-trivial" in refused.value.__notes__[0]
    assert "flashinfer" in refused.value.__notes__[0]


def test_it_is_taken_on_if_that_is_asked_for() -> None:
    check_fitness(described("refused"), allow_trivial=True)


@pytest.mark.parametrize("fitness", [None, "fit", "marked"])
def test_other_tasks_are_taken_on(fitness: Fitness | None) -> None:
    check_fitness(described(fitness), allow_trivial=False)


def test_marks_are_told() -> None:
    assert marks_of(described("marked")) == ("zeros: passes",)
    assert marks_of(described(None)) == ()
