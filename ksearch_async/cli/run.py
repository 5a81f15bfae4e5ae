"""`ksearch run`: one search, from a task to a kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ksearch_async.cli.dry_run import rehearse
from ksearch_async.cli.flags import JsonFlag, RunFlags, ViewFlag, named_flags
from ksearch_async.cli.session import conduct
from ksearch_async.config import trace_config
from ksearch_async.launch import open_run

NO_FLAGS = RunFlags()


def run_command(
    task: str | None = None,
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    flags: RunFlags = NO_FLAGS,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    view: ViewFlag = "auto",
    as_json: JsonFlag = False,
) -> int:
    """Search for a faster kernel.

    Args:
        task: A bundled problem's name, or a problem file in KernelBench's format.
        config: A TOML file.
        flags: One for each setting that has one.
        dry_run: Say what would be done, with which settings and where they come from, and start nothing.
        view: `live` redraws a picture of the search in place, `plain` prints a line per event; `auto` is `live` on a
            terminal that can.
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    resolved = trace_config(task, config_file=config, environment=os.environ, flags=named_flags(flags))
    if dry_run:
        return rehearse(resolved, as_json=as_json)
    return conduct(open_run(resolved.config), view=view, as_json=as_json)
