"""`ksearch resume`: goes on with a run that was stopped or killed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ksearch_async.cli.session import conduct
from ksearch_async.config import load_config, resolve_config
from ksearch_async.launch import reopen_run
from ksearch_async.runs import find_run, runs_dir_or_default


def resume_command(
    run: str = "latest",
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    max_rounds: int | None = None,
    model: str | None = None,
    base_url: str | None = None,
    model_kind: Literal["auto", "offline", "chat"] | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    builders: int | None = None,
    evaluators: int | None = None,
    sync: Literal["always", "never"] | None = None,
    runs_dir: Path | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Go on with a run that was stopped or killed; nothing that its journal holds is asked or measured again.

    Its configuration is the saved one. Rounds, model and workers may change, anything else is refused by name.
    Ends as `ksearch run` does; a run that is over only has its summary printed, unless it is given more rounds.

    Args:
        run: A run's id, its folder, or `latest`.
        config: A TOML file; what it sets must agree with the saved configuration where that may not change.
        max_rounds: Evaluations to spend in all, those of earlier sessions included.
        model: The endpoint's name of the model that plans and writes.
        base_url: Address of an OpenAI-compatible endpoint.
        model_kind: `auto`, `offline` or `chat`.
        concurrency: Model calls in flight at once.
        timeout: Seconds that one model call may take.
        builders: Candidates compiled at once.
        evaluators: Candidates judged at once.
        sync: When events are forced to disk.
        runs_dir: Where runs are looked for. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    folder = find_run(run, runs_dir_or_default(runs_dir))
    saved = load_config(folder.config)
    flags = {
        "max-rounds": max_rounds,
        "model": model,
        "base-url": base_url,
        "model-kind": model_kind,
        "concurrency": concurrency,
        "timeout": timeout,
        "builders": builders,
        "evaluators": evaluators,
        "sync": sync,
    }
    resolved = resolve_config(config_file=config, environment={}, flags=flags, saved=saved)
    return conduct(reopen_run(folder, resolved), as_json=as_json)
