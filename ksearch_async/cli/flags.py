"""The options of `run` and `resume`: one field per flag, named as in `config.SETTINGS`, null where it was not given."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeAlias

from cyclopts import Parameter

from actors.llm.base import ReasoningEffort
from ksearch_async.config import KernelLanguage

JsonFlag: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
"""`--json`, which every command has."""

ViewFlag: TypeAlias = Annotated[Literal["auto", "live", "plain"], Parameter(name="--view")]
"""`--view`, of the commands that lead a search."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SessionFlags:
    """What may differ from one session of a run to the next."""

    max_rounds: int | None = None
    """Evaluations to spend in all. [default: 40]"""
    max_seconds: float | None = None
    """Stop after this wall-clock time."""
    max_calls: int | None = None
    """Stop after this many answers of the model."""
    max_tokens: int | None = None
    """Stop after this many tokens, prompts included."""
    target_speedup: float | None = None
    """Stop once the best kernel's credit reaches it."""
    model: str | None = None
    """The endpoint's name of the model that plans and writes."""
    base_url: str | None = None
    """Address of an OpenAI-compatible endpoint."""
    model_kind: Literal["auto", "offline", "chat"] | None = None
    """`auto` asks an endpoint if a model is named, and the built-in rules if not. [default: auto]"""
    concurrency: int | None = None
    """Model calls in flight at once. [default: 8]"""
    timeout: float | None = None
    """Seconds that one model call may take. [default: 600]"""
    temperature: float | None = None
    """Of the model's answers; without it and the next two the endpoint decides."""
    max_answer_tokens: int | None = None
    """Tokens that one answer may have, hidden reasoning included."""
    reasoning_effort: ReasoningEffort | None = None
    """How much the model may think before it answers."""
    mistakes: float | None = None
    """Share of the built-in rules' answers that are spoiled as models spoil theirs, 0 to 1. [default: 0]"""
    builders: int | None = None
    """Candidates compiled at once. [default: 2]"""
    evaluators: int | None = None
    """Candidates judged at once; timing is always one at a time. [default: 2]"""
    sync: Literal["always", "never"] | None = None
    """`always` has every event on disk before it is acted on; `never` survives a kill, not a power cut.
    [default: always]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RunFlags(SessionFlags):
    """What a run is started with."""

    effort: Literal["quick", "standard", "full"] | None = None
    """How long to search: `quick` means 16 rounds, `standard` 40, `full` 120 on 8 branches. What is set besides counts
    before it. [default: standard]"""
    world_model: Literal["evolving", "frozen", "off"] | None = None
    """Whether the model revises the tree of ideas as results come in, makes it once, or is not asked for one.
    [default: evolving]"""
    branches: int | None = None
    """Branches of the tree refined at once. [default: 4]"""
    window: int | None = None
    """A branch ends after this many attempts in a row without improvement. [default: 5]"""
    max_difficulty: int | None = None
    """Harder actions (1 to 5) wait until nothing easier is open. [default: 5]"""
    language: KernelLanguage | None = None
    """What kernels are written in; `triton` is interpreted: correct or not, and not timed. [default: cpp]"""
    score_with: str | None = None
    """The task is a Python program, and the `evaluate(program_path)` of this file scores it."""
    eval_timeout: float | None = None
    """Seconds that scoring one program may take. [default: 60]"""
    eval_memory: float | None = None
    """Gibibytes that one program may take. [default: 8]"""
    seed: int | None = None
    """The search's decisions follow from it and from what it measures. [default: 0]"""
    runs_dir: str | None = None
    """Folder that the run's own folder is made in. [default: runs]"""


def named_flags(given: SessionFlags) -> dict[str, object]:
    """Return flag → value, as `resolve_config` takes them."""
    return {field.name.replace("_", "-"): getattr(given, field.name) for field in fields(given)}
