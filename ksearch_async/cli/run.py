"""`ksearch run`: one search, from a task to a kernel."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from ksearch_async.cli.session import conduct
from ksearch_async.config import resolve_config
from ksearch_async.launch import open_run


def run_command(
    task: str | None = None,
    /,
    *,
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    branches: int | None = None,
    max_rounds: int | None = None,
    window: int | None = None,
    max_difficulty: int | None = None,
    max_seconds: float | None = None,
    max_calls: int | None = None,
    max_tokens: int | None = None,
    target_speedup: float | None = None,
    model: str | None = None,
    base_url: str | None = None,
    model_kind: Literal["auto", "offline", "chat"] | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    builders: int | None = None,
    evaluators: int | None = None,
    language: Literal["cpp"] | None = None,
    seed: int | None = None,
    runs_dir: str | None = None,
    sync: Literal["always", "never"] | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Search for a faster kernel.

    Without --model the built-in rules plan and write; they are not a language model. A key is read from
    KSEARCH_API_KEY or OPENAI_API_KEY. Options can be set in a file (-c), and as KSEARCH_<OPTION> in the environment.

    Ends with 0 if a correct kernel is faster than the reference (its interval's lower bound is above 1), 1 if none is,
    2 for bad input, 3 if the infrastructure failed, 130 if interrupted. The first Ctrl-C lets evaluations in flight
    finish, the second stops now; `ksearch resume` goes on after either.

    Args:
        task: A bundled problem's name, or a problem file in KernelBench's format.
        config: A TOML file.
        branches: Branches of the tree refined at once. [default: 4]
        max_rounds: Evaluations to spend. [default: 40]
        window: A branch ends after this many attempts in a row without improvement. [default: 5]
        max_difficulty: Harder actions (1 to 5) wait until nothing easier is open. [default: 5]
        max_seconds: Stop after this wall-clock time.
        max_calls: Stop after this many answers of the model.
        max_tokens: Stop after this many tokens, prompts included.
        target_speedup: Stop once the best kernel's credit reaches it.
        model: The endpoint's name of the model that plans and writes.
        base_url: Address of an OpenAI-compatible endpoint.
        model_kind: `auto` asks an endpoint if a model is named, and the built-in rules if not. [default: auto]
        concurrency: Model calls in flight at once. [default: 8]
        timeout: Seconds that one model call may take. [default: 600]
        builders: Candidates compiled at once. [default: 2]
        evaluators: Candidates judged at once; timing is always one at a time. [default: 2]
        language: What kernels are written in. [default: cpp]
        seed: The search's decisions follow from it and from what it measures. [default: 0]
        runs_dir: Folder that the run's own folder is made in. [default: runs]
        sync: `always` has every event on disk before it is acted on; `never` survives a kill, not a power cut.
            [default: always]
        as_json: Print one JSON object per event; the last one is `run.finished`.
    """
    flags = {
        "branches": branches,
        "max-rounds": max_rounds,
        "window": window,
        "max-difficulty": max_difficulty,
        "max-seconds": max_seconds,
        "max-calls": max_calls,
        "max-tokens": max_tokens,
        "target-speedup": target_speedup,
        "model": model,
        "base-url": base_url,
        "model-kind": model_kind,
        "concurrency": concurrency,
        "timeout": timeout,
        "builders": builders,
        "evaluators": evaluators,
        "language": language,
        "seed": seed,
        "runs-dir": runs_dir,
        "sync": sync,
    }
    resolved = resolve_config(task, config_file=config, environment=os.environ, flags=flags)
    return conduct(open_run(resolved), as_json=as_json)
