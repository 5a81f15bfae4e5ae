"""Whether a task is taken on: one that a trick would pass is refused, one that a trick could gain from is marked."""

from __future__ import annotations

from ksearch_async.refusals import refusal
from messages.tasks import TaskDescription


def check_fitness(description: TaskDescription, *, allow_trivial: bool) -> None:
    """Accept a task that can tell a kernel from a trick.

    Args:
        description: with what was found when its reference ran.
        allow_trivial: accept any.

    Raises:
        ConfigError: an answer that computes nothing would pass.
    """
    intake = description.intake
    if intake is None or intake.fitness != "refused" or allow_trivial:
        return
    raise refusal(
        f"task {description.name!r} cannot tell a kernel from an answer that computes nothing: {intake.findings[0]}",
        f"ksearch check-task says more; --allow-trivial takes it all the same (tolerance: {intake.tolerance})",
    )


def marks_of(description: TaskDescription) -> tuple[str, ...]:
    """Return what whoever uses the task's results should know, a sentence each."""
    return () if description.intake is None else description.intake.findings
