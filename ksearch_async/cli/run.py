"""`ksearch run`: one search, from a task to a kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ksearch_async.cli.flags import CredentialsFlag, DetachFlag, JsonFlag, RunFlags, ViewFlag, named_flags, sign_in_with
from ksearch_async.errors import refusal
from ksearch_async.settings.resolve import trace_config

NO_FLAGS = RunFlags()


def run_command(
    task: str | None = None,
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    flags: RunFlags = NO_FLAGS,
    credentials: CredentialsFlag = None,
    run_name: str | None = None,
    target_gpu: Annotated[str | None, Parameter(show=False)] = None,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    detach: DetachFlag = False,
    view: ViewFlag = "auto",
    as_json: JsonFlag = False,
) -> int:
    """Search for a faster kernel.

    Args:
        task: A bundled problem's name, a problem file in KernelBench's format, a folder with a task.toml (ksearch
            new-task), or SOURCE:… with gpumode, flashinfer, tritonbench or kernelbench.
        config: A TOML file with settings.
        flags: The settings.
        credentials: File with the credentials for the NATS server. [env: KSEARCH_NATS_CREDENTIALS]
        run_name: Name of the run's folder. [default: made of task and time]
        target_gpu: Refuse the run unless it is timed on this device (K-Search's flag).
        dry_run: Report what the run would do and where each setting comes from, and start nothing.
        detach: Go on in the background, even when the terminal closes; output goes to the run's folder. `ksearch watch`
            shows it, `ksearch stop` stops it.
        view: `live` redraws a picture of the search in place, `plain` prints a line per event; `auto` chooses `live` on
            a terminal that supports it.
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    sign_in_with(credentials)
    resolved = trace_config(task, config_file=config, environment=os.environ, flags=named_flags(flags))
    if resolved.origins["language"] == "--language" and resolved.config.program.evaluator is not None:
        raise refusal("--language is for kernels, and programs are Python", "leave it out")
    from ksearch_async.cli.session import start_run  # noqa: PLC0415 - `ksearch run --help` needs no search

    return start_run(
        resolved,
        run_name=run_name,
        target_gpu=target_gpu,
        dry_run=dry_run,
        detach=detach,
        view=view,
        as_json=as_json,
    )
