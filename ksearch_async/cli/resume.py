"""`ksearch resume`: goes on with a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ksearch_async.cli.flags import (
    CredentialsFlag,
    DetachFlag,
    JsonFlag,
    SessionFlags,
    ViewFlag,
    named_flags,
    sign_in_with,
)
from ksearch_async.cli.session import conduct
from ksearch_async.runs.folder import find_run
from ksearch_async.runs.resume import reopen_session
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.run_config import load_config, runs_dir_or_default

NO_FLAGS = SessionFlags()


def resume_command(
    run: str = "latest",
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    flags: SessionFlags = NO_FLAGS,
    credentials: CredentialsFlag = None,
    runs_dir: Path | None = None,
    detach: DetachFlag = False,
    view: ViewFlag = "auto",
    as_json: JsonFlag = False,
) -> int:
    """Go on with a run that was stopped or killed; no question or measurement in its journal is repeated.

    Args:
        run: A run's id, its folder, or `latest`.
        config: A TOML file. Settings that cannot change in a run must be equal to those of the saved configuration.
        flags: The settings that may change.
        credentials: File with the credentials for the NATS server. [env: KSEARCH_NATS_CREDENTIALS]
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        detach: Go on in the background, even when the terminal closes; output goes to the run's folder.
        view: `live` redraws a picture of the search in place, `plain` prints a line per event; `auto` chooses `live` on
            a terminal that supports it.
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    sign_in_with(credentials)
    folder = find_run(run, runs_dir_or_default(runs_dir))
    saved = load_config(folder.config)
    resolved = resolve_config(config_file=config, environment={}, flags=named_flags(flags), saved=saved)
    return conduct(
        lambda start: reopen_session(folder, resolved, start=start), view=view, as_json=as_json, detach=detach
    )
