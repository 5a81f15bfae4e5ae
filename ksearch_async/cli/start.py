"""What `ksearch run` does once its configuration is known: checks the rest, then rehearses the run or leads it."""

from __future__ import annotations

from functools import partial

import anyio

from ksearch_async.cli.dry_run import rehearse
from ksearch_async.cli.session import ViewKind, conduct
from ksearch_async.config import RunConfig
from ksearch_async.opening import open_session
from ksearch_async.refusals import refusal
from ksearch_async.resolve import Resolved
from ksearch_async.runs import run_id_of
from ksearch_async.session import Opening, Start
from ksearch_async.workers import find_target, read_task


def start_run(
    resolved: Resolved,
    *,
    run_name: str | None,
    target_gpu: str | None,
    dry_run: bool,
    detach: bool,
    view: ViewKind,
    as_json: bool,
) -> int:
    """Start a run, or only say what it would be, and return the exit code.

    Raises:
        ConfigError: it cannot be started like this.
    """
    config = resolved.config
    run_id = run_id_of(run_name) if run_name is not None else None
    if target_gpu is not None:
        _check_device(config, target_gpu)
    if dry_run:
        return rehearse(resolved, run_id=run_id, as_json=as_json)
    return conduct(partial(_opening, config, run_id), view=view, as_json=as_json, detach=detach)


def _opening(config: RunConfig, run_id: str | None, start: Start) -> Opening:
    return open_session(config, run_id=run_id, start=start)


def _check_device(config: RunConfig, wanted: str) -> None:
    """Accept a device whose name has all parts of what is wanted, as `NVIDIA A100-SXM4-80GB` has those of `A100-80GB`.

    Raises:
        ConfigError: this run would be timed on another.
    """
    device = anyio.run(find_target, read_task(config), config.candidate_language, config.workers.device).device
    if not all(part in device.lower() for part in wanted.lower().replace("-", " ").split()):
        raise refusal(
            f"--target-gpu {wanted}: this run is for {device}, the device that it is timed on",
            "leave --target-gpu out, or run on a machine that has it",
        )
