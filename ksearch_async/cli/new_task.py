"""`ksearch new-task`: begins your own task, from an example or from a model's draft."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Annotated

import anyio
from cyclopts import Parameter

from evaluators.tasks.own.document import DOCUMENT, REFERENCE, write_task
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag, ModelFlags
from ksearch_async.errors import refusal
from ksearch_async.views.terminal import note, put, put_json, put_lines


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DraftFlags(ModelFlags):
    """Who drafts; as `ksearch run` has them."""

    config: Annotated[Path | None, Parameter(name=["--config", "-c"], group="Model")] = None
    """A TOML configuration, as for `ksearch run`; the model that it names writes the draft."""


def new_task_command(
    name: str | None = None,
    /,
    *,
    text: Annotated[str | None, Parameter(name="--from")] = None,
    folder: Annotated[Path, Parameter(name="--in")] = Path(),
    flags: DraftFlags = DraftFlags(),
    device: str = "cpu",
    as_json: JsonFlag = False,
) -> int:
    """Write a task of your own: a folder with a commented task.toml and a reference that works.

    Args:
        name: Name of the task, its folder and the function in its reference: letters, digits and _. With `--from` it
            may be left out: the model names the task.
        text: What to compute, in a sentence: "batched matmul A x B, batch 32, bf16, bias and GELU". The model drafts
            reference and workloads, `ksearch check-task` checks them, and nothing is searched before you approve.
        folder: Folder in which the task's folder is made.
        flags: The model that writes the draft.
        device: Device on which a draft is checked: `cpu`, or `cuda:0`.
        as_json: Print one JSON object.
    """
    if text is not None:
        return _drafted(text, name or "", folder, flags, device=device, as_json=as_json)
    if name is None:
        raise refusal("no name is given", 'ksearch new-task NAME, or have a model draft one: --from "TEXT"')
    if idle := next((field.name for field in fields(flags) if getattr(flags, field.name) is not None), None):
        raise refusal(f"--{idle.replace('_', '-')} is for --from, and nothing is drafted here", "leave it out")
    made = write_task(folder, name)
    if as_json:
        put_json({"folder": str(made)})
    else:
        put(str(made))
    note(f"edit {made / DOCUMENT} and {made / REFERENCE}, then: ksearch check-task {_argument(made)}")
    return exits.FOUND


def _drafted(text: str, name: str, parent: Path, flags: DraftFlags, *, device: str, as_json: bool) -> int:
    from evaluators.tasks.own.drafts import write_draft  # noqa: PLC0415 - writing an example needs none of these
    from ksearch_async.cli.check_task import examine_task  # noqa: PLC0415
    from ksearch_async.evaluation.drafts import draft_task, require_endpoint  # noqa: PLC0415
    from ksearch_async.follow.logs import configure_logs  # noqa: PLC0415
    from ksearch_async.settings.models import model_words  # noqa: PLC0415
    from ksearch_async.settings.resolve import resolve_config  # noqa: PLC0415

    configure_logs()
    if name and (parent / name).exists():
        raise refusal(f"{str(parent / name)!r} is there already", "name another task, or remove it")
    given = {field.name.replace("_", "-"): getattr(flags, field.name) for field in fields(flags)}
    config_file = given.pop("config")
    config = resolve_config(name or "draft", config_file=config_file, environment=os.environ, flags=given)
    require_endpoint(config.model)
    note(f"asking for a draft: {model_words(config.model, os.environ)}")
    ask = partial(draft_task, config.model, text, name=name, tell=_tell_complaint)
    drafted = anyio.run(ask)
    made = write_draft(parent, drafted.document, drafted.reference)
    tokens = f"{drafted.prompt_tokens} tokens of prompts, {drafted.completion_tokens} of answers"
    note(f"drafted in {drafted.questions} question{'s' if drafted.questions > 1 else ''}: {tokens}")
    if not as_json:
        put(str(made))
        for file in (REFERENCE, DOCUMENT):
            put_lines(["", f"--- {made / file}", *(made / file).read_text(encoding="utf-8").splitlines()])
        put()
    found = examine_task(str(made), device=device, tolerance="strict")
    if not as_json:
        put_lines(found.lines())
    is_accepted = not as_json and found.may_be_accepted and ask_for_yes(made)
    if as_json:
        told = {"folder": str(made), "draft": drafted.document.draft, "questions": drafted.questions}
        put_json(told | {"accepted": False, "check": found.as_object()})
    _say_next(made, may_be_accepted=found.may_be_accepted, is_accepted=is_accepted)
    return found.exit_code


def _tell_complaint(complaint: str) -> None:
    note(f"the answer cannot be used, and is asked for again: {'; '.join(complaint.splitlines())}")


def ask_for_yes(made: Path) -> bool:
    """Ask whether a draft is what was wanted; no without a terminal. A yes is written down."""
    from evaluators.tasks.own.drafts import accept_draft  # noqa: PLC0415

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write("\nIs this what is to be computed, on these sizes? Then it can be searched on. [y/N] ")
    sys.stderr.flush()
    is_yes = sys.stdin.readline().strip().lower() in ("y", "yes")
    if is_yes:
        accept_draft(str(made))
    return is_yes


def _argument(made: Path) -> str:
    """Return a task's folder as other commands take it: a bundled task's name, alone, is that one's."""
    from evaluators.tasks import is_bundled  # noqa: PLC0415 - an example is written without it

    return quote(f"./{made}" if is_bundled(str(made)) else str(made))


def _say_next(made: Path, *, may_be_accepted: bool, is_accepted: bool) -> None:
    look = f"ksearch check-task {_argument(made)}"
    if is_accepted:
        note(f"accepted; then: ksearch run {_argument(made)}")
    elif may_be_accepted:
        note(f"nothing is searched before a person says yes: read it, edit it, then: {look} --accept")
    else:
        note(f"not to be accepted like this: edit {made / REFERENCE} and {made / DOCUMENT}, then: {look}")
