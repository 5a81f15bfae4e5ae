"""`ksearch run`: one search, from a task to a kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

from ksearch_async.cli.dry_run import rehearse
from ksearch_async.cli.flags import JsonFlag, RunFlags, ViewFlag, named_flags
from ksearch_async.cli.session import conduct
from ksearch_async.config import RunConfig, trace_config
from ksearch_async.launch import open_run
from ksearch_async.refusals import refusal
from ksearch_async.runs import run_id_of
from ksearch_async.workers import find_target, read_task

NO_FLAGS = RunFlags()


def run_command(
    task: str | None = None,
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    flags: RunFlags = NO_FLAGS,
    run_name: str | None = None,
    target_gpu: Annotated[str | None, Parameter(show=False)] = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    view: ViewFlag = "auto",
    as_json: JsonFlag = False,
) -> int:
    """Search for a faster kernel.

    Args:
        task: A bundled problem's name, or a problem file in KernelBench's format.
        config: A TOML file.
        flags: One for each setting that has one.
        run_name: Name of the run's folder. Without it the name is made of task and time.
        target_gpu: What the run must be timed on, or it is refused; K-Search's flag.
        dry_run: Say what would be done, with which settings and where they come from, and start nothing.
        view: `live` redraws a picture of the search in place, `plain` prints a line per event; `auto` is `live` on a
            terminal that can.
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    resolved = trace_config(task, config_file=config, environment=os.environ, flags=named_flags(flags))
    run_id = run_id_of(run_name) if run_name is not None else None
    if target_gpu is not None:
        _check_device(resolved.config, target_gpu)
    if dry_run:
        return rehearse(resolved, run_id=run_id, as_json=as_json)
    return conduct(open_run(resolved.config, run_id=run_id), view=view, as_json=as_json)


def _check_device(config: RunConfig, wanted: str) -> None:
    """Accept a device whose name has all parts of what is wanted, as `NVIDIA A100-SXM4-80GB` has those of `A100-80GB`.

    Raises:
        ConfigError: this run would be timed on another.
    """
    device = anyio.run(find_target, read_task(config), config.candidate_language).device
    if not all(part in device.lower() for part in wanted.lower().replace("-", " ").split()):
        raise refusal(
            f"--target-gpu {wanted}: this run is for {device}, the device that it is timed on",
            "leave --target-gpu out, or run on a machine that has it",
        )
