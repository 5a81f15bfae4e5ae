"""Options of `run`, `resume`, `eval` and `export`: one field per setting."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Group, Parameter, validators

from actors.llm.base import ReasoningEffort
from ksearch_async.evaluation.settings import EvaluationSettings
from ksearch_async.settings.table import KernelLanguage, ModelKind
from messages.base import EditFormat, Isolation
from messages.models import Choice
from messages.tasks import LibraryCalls, Measure

SEARCH = Parameter(group=Group("Search", sort_key=1))
LIMITS = Parameter(group=Group("Limits", sort_key=2))
MODEL = Parameter(group=Group("Model", sort_key=3))
HOST = Parameter(group=Group("This machine", sort_key=4))
NATS = Parameter(group=Group("Other machines", sort_key=5))
PROGRAMS = Parameter(group=Group("Tasks that are Python programs", sort_key=6))
FOLLOWERS = Parameter(group=Group("Who is told of it", sort_key=7))
"""Under which heading `--help` lists an option; those without one come last."""

JsonFlag: TypeAlias = Annotated[bool, Parameter(name="--json", negative="", show_default=False)]
"""`--json`, which every command has."""

ViewFlag: TypeAlias = Annotated[Literal["auto", "live", "plain"], Parameter(name="--view")]
"""`--view`, of the commands that lead a search."""


DetachFlag: TypeAlias = Annotated[bool, Parameter(negative="", show_default=False)]
"""`--detach`, likewise."""

CredentialsFlag: TypeAlias = Annotated[Path | None, NATS]
"""`--credentials`, of the commands that lead a search."""


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
    max_cost: Annotated[float | None, LIMITS] = None
    """Ask no model whose answer would bring the run above this many US dollars; needs a price for each model."""
    target_speedup: Annotated[float | None, LIMITS] = None
    """Stop once the best kernel's credit reaches it."""
    model: Annotated[str | None, MODEL] = None
    """The endpoint's name of the model that plans and writes."""
    base_url: Annotated[str | None, MODEL] = None
    """Address of an OpenAI-compatible endpoint."""
    planner_model: Annotated[str | None, MODEL] = None
    """The model that plans, if it is another one."""
    planner_base_url: Annotated[str | None, MODEL] = None
    """Its endpoint, if that is another one."""
    coder_model: Annotated[str | None, MODEL] = None
    """The model that writes, if it is another one; or several, with weights: `small=3,large`."""
    coder_base_url: Annotated[str | None, MODEL] = None
    """Its endpoint, if that is another one."""
    coder_choice: Annotated[Choice | None, MODEL] = None
    """How one of several is chosen: by `weights`, or `bandit`: by which brings correct and faster kernels for least.
    [default: weights]"""
    model_kind: Annotated[ModelKind | None, MODEL] = None
    """`auto` asks an endpoint if a model is named, and the built-in rules if not; `chat` and `responses` are how
    endpoints are asked; `replay` takes answers from a recorded run, `manual` from files that somebody writes.
    [default: auto]"""
    concurrency: Annotated[int | None, MODEL] = None
    """Model calls in flight at once. [default: 8]"""
    requests_per_minute: Annotated[int | None, MODEL] = None
    """Ask an endpoint at most so often in a minute; without it and the next one as often as it bears."""
    tokens_per_minute: Annotated[int | None, MODEL] = None
    """Use at most so many of its tokens in a minute, prompts and answers together."""
    prices: Annotated[str | None, MODEL] = None
    """A file of prices (TOML), which go before your own and the shipped ones."""
    timeout: Annotated[float | None, MODEL] = None
    """Seconds that one model call may take. [default: 600]"""
    temperature: Annotated[float | None, MODEL] = None
    """Of the model's answers; without it and the next two the endpoint decides."""
    max_answer_tokens: Annotated[int | None, MODEL] = None
    """Tokens that one answer may have, hidden reasoning included."""
    reasoning_effort: Annotated[ReasoningEffort | None, MODEL] = None
    """How much the model may think before it answers."""
    llm_seed: Annotated[int | None, MODEL] = None
    """Seed of the endpoint's draws, where it has such."""
    structured: Annotated[Literal["auto", "on", "off"] | None, MODEL] = None
    """Have the endpoint hold the planner's answers to a JSON schema; `auto`: if `ksearch doctor --model` found that it
    can. [default: auto]"""
    early_stop: Annotated[bool | None, MODEL] = None
    """Stream answers, and do not read on long after they are whole. [default: yes]"""
    replay: Annotated[str | None, MODEL] = None
    """Have a recorded run answer, by name or folder: it costs nothing."""
    replay_misses: Annotated[Literal["refuse", "ask"] | None, MODEL] = None
    """What it was not asked ends the run, or is asked of --model. [default: refuse]"""
    mistakes: Annotated[float | None, MODEL] = None
    """Share of the built-in rules' answers that are spoiled as models spoil theirs, 0 to 1. [default: 0]"""
    builders: Annotated[int | None, HOST] = None
    """Candidates compiled at once. [default: 2]"""
    evaluators: Annotated[int | None, HOST] = None
    """Candidates judged at once; timing is always one at a time. [default: 2]"""
    device: Annotated[str | None, HOST] = None
    """Where candidates run: `cpu`, `cuda:0`, or several GPUs of this host: `cuda:0,cuda:1`. [default: cpu]"""
    baseline: Annotated[Literal["torch.compile"] | None, HOST] = None
    """A second program to time beside the reference, on a GPU."""
    isolation: Annotated[Literal["auto", "strict"] | None, HOST] = None
    """How candidates are kept from this host: `auto`, by what it has; `strict`, not run unless it has Landlock or a
    private root, seccomp, and no network. [default: auto]"""
    sync: Annotated[Literal["always", "never"] | None, HOST] = None
    """`always` has every event on disk before it is acted on; `never` survives a kill, not a power cut.
    [default: always]"""
    track: Annotated[str | None, FOLLOWERS] = None
    """Tell experiment trackers of the run: `wandb`, `mlflow`, or both with a comma. Each is an extra."""
    track_project: Annotated[str | None, FOLLOWERS] = None
    """Their project, or experiment. [default: ksearch]"""
    notify: Annotated[str | None, FOLLOWERS] = None
    """Address of a webhook that gets notices as JSON. [env: KSEARCH_NOTIFY, which is not saved with the run]"""
    notify_on: Annotated[str | None, FOLLOWERS] = None
    """Of what: `best`, `finished`, `trouble`, with commas. [default: all]"""
    nats: Annotated[str | None, NATS] = None
    """Address of a NATS server (several with commas) whose workers do the run's jobs; or `embedded`: a server of the
    run's own, which workers may join."""
    with_: Annotated[str | None, NATS] = None
    """Which workers are in this process: `coder`, `builder`, `evaluator` (several with commas), `all` or `none`.
    [default: all; none if --nats is an address]"""
    metrics_port: Annotated[int | None, NATS] = None
    """Serve metrics for Prometheus at this port, 0: at a free one. Needs --nats and the extra `metrics`."""
    metrics_host: Annotated[str | None, NATS] = None
    """Address to serve them at; there is no authentication. [default: 127.0.0.1]"""


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
    """A branch ends after this many attempts in a row without improvement. [default: 3]"""
    repair_window: Annotated[int | None, SEARCH] = None
    """The same for a branch that has no correct candidate yet. [default: 5]"""
    samples: Annotated[int | None, SEARCH] = None
    """Drafts of one attempt, written and evaluated at once; the best goes on, each counts as a round. [default: 1]"""
    selection: Annotated[Literal["auto", "paper", "spread"] | None, SEARCH] = None
    """How the next action is chosen: `paper`, the largest V (K-Search's rule); `spread`, with evidence, exploration
    and a penalty for what is near those at work. [default: auto, `paper` with one branch]"""
    max_difficulty: Annotated[int | None, SEARCH] = None
    """Harder actions (1 to 5) wait until nothing easier is open. [default: 5]"""
    confirm: Annotated[bool | None, SEARCH] = None
    """Measure a timed candidate a second time before it counts as the best. [default: yes]"""
    edit_format: Annotated[EditFormat | None, SEARCH] = None
    """How coders answer: with `whole` files, or `search-replace` blocks against the code they see. [default: auto,
    whole files until the code is long]"""
    language: Annotated[KernelLanguage | None, SEARCH] = None
    """What kernels are written in; on a CPU `triton` is interpreted: correct or not, and not timed. `cuda` needs a GPU,
    `cpp` is for CPUs. [default: cpp]"""
    threads: Annotated[int | None, SEARCH] = None
    """On how many CPU threads candidate and reference run, bound to as many cores; 0: on all. [default: 0]"""
    measure: Annotated[Measure | None, SEARCH] = None
    """What counts as latency on a GPU: `device`, the span of a call's kernels with launches hidden behind other work;
    `eager`, the call as a user makes it on an idle device. [default: device]"""
    library_calls: Annotated[LibraryCalls | None, SEARCH] = None
    """Whether a library may do the kernels' work: `deny` rejects what calls operators of torch other
    than views, copies and plain elementwise ones, cuBLAS and the like. [default: deny]"""
    allow_library: Annotated[str | None, SEARCH] = None
    """What is allowed though the rest is not, with commas: operators (`aten::mm`), families of them (`matmul`),
    libraries (`cublas`)."""
    tolerance: Annotated[str | None, SEARCH] = None
    """How far outputs may lie from the reference: `strict`, or what another harness lets through: `kernelbench`,
    `flashinfer`, `gpumode:RTOL,ATOL`. [default: strict]"""
    allow_trivial: Annotated[bool | None, Parameter(negative="", show_default=False), SEARCH] = None
    """Take a task on though an answer that computes nothing would pass."""
    continue_from_solution: Annotated[str | None, SEARCH] = None
    """Begin with this kernel: a source file, a run's `best` folder, or a run. It is measured first."""
    continue_from_world_model: Annotated[str | None, SEARCH] = None
    """Begin with the tree of a run, of a file, or (`auto`) of the latest run of this task; its results are measured
    anew, or told as history where task or device are others."""
    score_with: Annotated[str | None, PROGRAMS] = None
    """The task is a Python program, and the `evaluate(program_path)` of this file scores it."""
    eval_timeout: Annotated[float | None, PROGRAMS] = None
    """Seconds that scoring one program may take. [default: 60]"""
    eval_memory: Annotated[float | None, PROGRAMS] = None
    """Gibibytes that one program may take. [default: 8]"""
    weight: Annotated[int | None, NATS] = None
    """The run's share of the workers, beside other runs there. [default: 1]"""
    tier: Annotated[str | None, NATS] = None
    """Which coders write: those that were started with this tier. [default: default]"""
    arch: Annotated[str | None, NATS] = None
    """Device or architecture that the run is for, where evaluators of several are there."""
    seed: Annotated[int | None, SEARCH] = None
    """The search's decisions follow from it and from what it measures. [default: 0]"""
    runs_dir: Annotated[str | None, HOST] = None
    """Folder that the run's own folder is made in. [default: runs]"""


def sign_in_with(credentials: Path | None) -> None:
    """Have this process sign in with a file, as if its environment said so. It is no setting: no run's folder names it.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    if credentials is None:
        return
    from ksearch_async.fleet.access import read_credentials  # noqa: PLC0415 - `--help` needs none of it

    read_credentials(credentials)
    os.environ["KSEARCH_NATS_CREDENTIALS"] = str(credentials.absolute())


def named_flags(given: SessionFlags) -> dict[str, object]:
    """Return flag → value, as `resolve_config` takes them."""
    return {field.name.strip("_").replace("_", "-"): getattr(given, field.name) for field in fields(given)}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluationFlags:
    """How sources are evaluated; what is not named is as by default, or of a run's kernel as the run had it."""

    language: KernelLanguage | None = None
    """What they are written in; `python` is a torch module, `ModelNew`. [default: of .cu files cuda, of .py files
    triton (python if they define ModelNew), else cpp]"""
    device: str | None = None
    """Where they run: `cpu`, `cuda:0`, or several GPUs of this host: `cuda:0,cuda:1`. [default: cpu]"""
    baseline: Literal["torch.compile"] | None = None
    """A second program to time beside the reference, on a GPU."""
    isolation: Isolation | None = None
    """How they are kept from this host: `auto`, by what it has; `strict`, not run unless it has Landlock or a private
    root, seccomp, and no network. [default: auto]"""
    threads: Annotated[int | None, Parameter(validator=validators.Number(gte=0))] = None
    """On how many CPU threads candidate and reference run, bound to as many cores; 0: on all. [default: 0; of a run's
    best as the run had it]"""
    measure: Measure | None = None
    """What counts as latency on a GPU: `device`, the span of a call's kernels with launches hidden behind other work;
    `eager`, the call as a user makes it on an idle device. [default: device; of a run's best as the run had it]"""
    tolerance: str | None = None
    """How far outputs may lie from the reference: `strict`, or what another harness lets through: `kernelbench`,
    `flashinfer`, `gpumode:RTOL,ATOL`. [default: strict; of a run's best as the run had it]"""
    library_calls: LibraryCalls | None = None
    """Whether a library may do the work: `deny` rejects what calls operators of torch other than
    views, copies and plain elementwise ones, cuBLAS and the like. [default: deny; of a run's best as the run had it]"""
    allow_library: str | None = None
    """What is allowed though the rest is not, with commas: operators (`aten::mm`), families of them (`matmul`),
    libraries (`cublas`)."""
    allow_trivial: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Take a task on though an answer that computes nothing would pass."""

    def settings(self) -> EvaluationSettings:
        """Return what was named: the others are as by default, or as a task of a run has them."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return msgspec.convert({name: value for name, value in named.items() if value is not None}, EvaluationSettings)


NO_EVALUATION_FLAGS = EvaluationFlags()
