"""The options of `run` and `resume`: one field per flag, named as in `config.SETTINGS`, null where it was not given."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter

from actors.llm.base import ReasoningEffort
from ksearch_async.config import KernelLanguage

SEARCH = Parameter(group=Group("Search", sort_key=1))
LIMITS = Parameter(group=Group("Limits", sort_key=2))
MODEL = Parameter(group=Group("Model", sort_key=3))
HOST = Parameter(group=Group("This machine", sort_key=4))
PROGRAMS = Parameter(group=Group("Tasks that are Python programs", sort_key=5))
"""Under which heading `--help` lists an option; those without one come last."""

JsonFlag: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
"""`--json`, which every command has."""

ViewFlag: TypeAlias = Annotated[Literal["auto", "live", "plain"], Parameter(name="--view")]
"""`--view`, of the commands that lead a search."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SessionFlags:
    """What may differ from one session of a run to the next."""

    max_rounds: Annotated[int | None, LIMITS] = None
    """Evaluations to spend in all. [default: 40]"""
    max_seconds: Annotated[float | None, LIMITS] = None
    """Stop after this wall-clock time."""
    max_calls: Annotated[int | None, LIMITS] = None
    """Ask the model at most so often."""
    max_tokens: Annotated[int | None, LIMITS] = None
    """Stop after this many tokens, prompts included."""
    target_speedup: Annotated[float | None, LIMITS] = None
    """Stop once the best kernel's credit reaches it."""
    model: Annotated[str | None, MODEL] = None
    """The endpoint's name of the model that plans and writes."""
    base_url: Annotated[str | None, MODEL] = None
    """Address of an OpenAI-compatible endpoint."""
    model_kind: Annotated[Literal["auto", "offline", "chat"] | None, MODEL] = None
    """`auto` asks an endpoint if a model is named, and the built-in rules if not. [default: auto]"""
    concurrency: Annotated[int | None, MODEL] = None
    """Model calls in flight at once. [default: 8]"""
    timeout: Annotated[float | None, MODEL] = None
    """Seconds that one model call may take. [default: 600]"""
    temperature: Annotated[float | None, MODEL] = None
    """Of the model's answers; without it and the next two the endpoint decides."""
    max_answer_tokens: Annotated[int | None, MODEL] = None
    """Tokens that one answer may have, hidden reasoning included."""
    reasoning_effort: Annotated[ReasoningEffort | None, MODEL] = None
    """How much the model may think before it answers."""
    mistakes: Annotated[float | None, MODEL] = None
    """Share of the built-in rules' answers that are spoiled as models spoil theirs, 0 to 1. [default: 0]"""
    builders: Annotated[int | None, HOST] = None
    """Candidates compiled at once. [default: 2]"""
    evaluators: Annotated[int | None, HOST] = None
    """Candidates judged at once; timing is always one at a time. [default: 2]"""
    sync: Annotated[Literal["always", "never"] | None, HOST] = None
    """`always` has every event on disk before it is acted on; `never` survives a kill, not a power cut.
    [default: always]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags(SessionFlags):
    """What a run is started with."""

    effort: Annotated[Literal["quick", "standard", "full"] | None, SEARCH] = None
    """How long to search: `quick` means 16 rounds, `standard` 40, `full` 120 on 8 branches. A number that is
    set by name counts instead. [default: standard]"""
    world_model: Annotated[Literal["evolving", "frozen", "off"] | None, SEARCH] = None
    """Whether the model revises the tree of ideas as results come in, makes it once, or is not asked for one.
    [default: evolving]"""
    branches: Annotated[int | None, SEARCH] = None
    """Branches of the tree refined at once. [default: 4]"""
    window: Annotated[int | None, SEARCH] = None
    """A branch ends after this many attempts in a row without improvement. [default: 5]"""
    max_difficulty: Annotated[int | None, SEARCH] = None
    """Harder actions (1 to 5) wait until nothing easier is open. [default: 5]"""
    language: Annotated[KernelLanguage | None, SEARCH] = None
    """What kernels are written in; `triton` is interpreted: correct or not, and not timed. [default: cpp]"""
    score_with: Annotated[str | None, PROGRAMS] = None
    """The task is a Python program, and the `evaluate(program_path)` of this file scores it."""
    eval_timeout: Annotated[float | None, PROGRAMS] = None
    """Seconds that scoring one program may take. [default: 60]"""
    eval_memory: Annotated[float | None, PROGRAMS] = None
    """Gibibytes that one program may take. [default: 8]"""
    seed: Annotated[int | None, SEARCH] = None
    """The search's decisions follow from it and from what it measures. [default: 0]"""
    runs_dir: Annotated[str | None, HOST] = None
    """Folder that the run's own folder is made in. [default: runs]"""


def named_flags(given: SessionFlags) -> dict[str, object]:
    """Return flag → value, as `resolve_config` takes them."""
    return {field.name.replace("_", "-"): getattr(given, field.name) for field in fields(given)}
