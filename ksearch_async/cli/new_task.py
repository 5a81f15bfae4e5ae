"""`ksearch new-task`: a task of one's own, to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from evaluators.tasks.own.document import DOCUMENT
from evaluators.tasks.own.template import REFERENCE, write_task
from ksearch_async.cli import exits
from ksearch_async.cli.output import note, put


def new_task_command(
    name: str,
    /,
    *,
    folder: Annotated[Path, Parameter(name="--in")] = Path(),
) -> int:
    """Write a task of your own: a folder with a commented task.toml and a reference that works.

    Args:
        name: Of the task, of its folder, and of the function in its reference: letters, digits and _.
        folder: Where the task's folder is made.
    """
    made = write_task(folder, name)
    put(str(made))
    note(f"edit {made / DOCUMENT} and {made / REFERENCE}, then: ksearch check-task {made}")
    return exits.FOUND
