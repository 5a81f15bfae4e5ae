"""The settings that have a flag, each declared once.

Flags of the command line, `KSEARCH_…` variables, keywords of the Python interface and the table in
docs/reference/configuration.md all follow from `SessionSettings` and `RunSettings`. Types and defaults of the values
are those of the fields of `RunConfig` that an option names. `python -m ksearch_async.settings.options` writes the table
of the reference anew.
"""

from __future__ import annotations

import ast
import re
from inspect import cleandoc
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, TypedDict, get_args, get_type_hints

import msgspec

from actors.llm.base import ReasoningEffort
from ksearch_async.settings.effort import Effort
from ksearch_async.settings.run_config import ModelKind, RunConfig, flatten
from messages.base import EditFormat, Isolation, Language
from messages.models import Choice
from messages.settings import WorldModel
from messages.tasks import LibraryCalls, Measure

SEARCH, LIMITS, MODEL = "Search", "Limits", "Model"
HOST, NATS = "This machine", "Other machines"
PROGRAMS, FOLLOWERS = "Tasks that are Python programs", "Trackers and notices"
GROUPS = (SEARCH, LIMITS, MODEL, HOST, NATS, PROGRAMS, FOLLOWERS)
"""Headings of `--help`, in its order."""

_REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"
_TABLE = re.compile(r"(?<=\| default \| meaning \|\n\|---\|---\|---\|---\|---\|\n)(?:\|[^\n]*\n)+")
_TASK_ROW = (
    "| `task` | first argument | | | A bundled problem's name, or the path of a problem file; either with "
    "[workloads](../guides/workloads.md) after a colon. |\n"
)


class Option(msgspec.Struct, frozen=True):
    """A setting as people meet it."""

    path: str
    """Dotted path of its field in `RunConfig`."""
    group: str
    """Heading under which `--help` lists it."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """An option with its names."""

    keyword: str
    """In the Python interface."""
    kind: object
    """Type of its value."""
    option: Option
    help: str
    """First paragraph of its text: for `--help` and the reference."""
    more: str
    """The second: for the reference, with links."""
    words: str
    """Its default in words, where the field's own says too little."""

    @property
    def path(self) -> str:
        """Dotted path of its field in `RunConfig`."""
        return self.option.path

    @property
    def flag(self) -> str:
        """Without the leading dashes."""
        return self.keyword.strip("_").replace("_", "-")

    @property
    def variable(self) -> str:
        """Name of the environment variable."""
        return "KSEARCH_" + self.flag.upper().replace("-", "_")

    @property
    def value(self) -> object:
        """Default of the field."""
        return _DEFAULTS[self.path]

    @property
    def default(self) -> str:
        """The default in words; empty if there is none."""
        if self.words or self.value is None:
            return self.words
        if isinstance(self.value, bool):
            return "yes" if self.value else ""
        return f"{self.value:g}" if isinstance(self.value, float) else str(self.value)


class SessionSettings(TypedDict, total=False):
    """Settings that may differ from one session of a run to the next."""

    max_rounds: Annotated[int, Option("search.budget.max_rounds", LIMITS)]
    """Evaluations to spend in all.

    A candidate that does not build counts as one. Candidates written before a stop are evaluated when the run is
    resumed, even beyond a smaller number of rounds.
    """
    max_seconds: Annotated[float, Option("search.budget.wall_clock_s", LIMITS)]
    """Stop after this wall-clock time, over all sessions."""
    max_calls: Annotated[int, Option("search.budget.max_calls", LIMITS)]
    """Stop after this many model calls, of planner and coders together.

    Calls in flight when a run is stopped or killed count.
    """
    max_tokens: Annotated[int, Option("search.budget.max_tokens", LIMITS)]
    """Stop after this many tokens, prompts included.

    A model is called only if its answer is expected to fit, together with all calls in flight.
    """
    max_cost: Annotated[float, Option("search.budget.max_cost_usd", LIMITS)]
    """Make no model call that would bring the cost above this many US dollars; needs a price for each model.

    See [prices](../guides/models.md#prices-and-a-budget-in-money).
    """
    target_speedup: Annotated[float, Option("search.budget.target_speedup", LIMITS)]
    """Stop once the lower bound of the best kernel's speedup reaches this."""
    model: Annotated[str, Option("model.name", MODEL)]
    """Name of the model at the endpoint."""
    base_url: Annotated[str, Option("model.base_url", MODEL)]
    """Address of an OpenAI-compatible endpoint. [default: that of the openai package]"""
    planner_model: Annotated[str, Option("model.planner.name", MODEL)]
    """Model for the planner, if different from --model.

    See [roles](../guides/models.md#two-roles-two-models).
    """
    planner_base_url: Annotated[str, Option("model.planner.base_url", MODEL)]
    """Endpoint of the planner's model, if different from --base-url."""
    coder_model: Annotated[str, Option("model.coder.name", MODEL)]
    """Model for the coder, if different from --model; or several models, with weights: `small=3,large`."""
    coder_base_url: Annotated[str, Option("model.coder.base_url", MODEL)]
    """Endpoint of the coder's model, if different from --base-url."""
    coder_choice: Annotated[Choice, Option("model.coder.choice", MODEL)]
    """How one of several coder models is chosen for each candidate: at random by `weights`, or by a `bandit`, which
    prefers the models that find correct and faster kernels at the lowest cost.

    See [several models](../guides/models.md#several-models-that-write).
    """
    model_kind: Annotated[ModelKind, Option("model.kind", MODEL)]
    """`chat`: an OpenAI-compatible endpoint; `responses`: one with OpenAI's Responses API; `offline`: the built-in
    rules, not a language model; `replay`: a recorded run answers; `manual`: a person or another program writes the
    answers into files; `auto`: `replay` if a run is given for it, `chat` if a model or an address is given, else
    `offline`.

    See [models](../guides/models.md).
    """
    concurrency: Annotated[int, Option("model.concurrency", MODEL)]
    """Model calls in flight at once at an endpoint.

    Fewer as long as it answers HTTP 429.
    """
    requests_per_minute: Annotated[int, Option("model.requests_per_minute", MODEL)]
    """Most requests to an endpoint in any 60 seconds. [default: no limit]

    See [limits](../guides/models.md#limits-of-an-endpoint).
    """
    tokens_per_minute: Annotated[int, Option("model.tokens_per_minute", MODEL)]
    """Most tokens of prompts and answers in any 60 seconds. [default: no limit]"""
    prices: Annotated[str, Option("model.prices", MODEL)]
    """A TOML file of prices that take precedence over your own and the shipped prices."""
    timeout: Annotated[float, Option("model.timeout_s", MODEL)]
    """Seconds that one model call may take, retries included."""
    temperature: Annotated[float, Option("model.temperature", MODEL)]
    """Sampling temperature, 0 to 2. [default: that of the endpoint]"""
    max_answer_tokens: Annotated[int, Option("model.max_tokens", MODEL)]
    """Most tokens of one answer, hidden reasoning included. [default: that of the endpoint]

    Sent as `max_completion_tokens`.
    """
    reasoning_effort: Annotated[ReasoningEffort, Option("model.reasoning_effort", MODEL)]
    """How much the model may reason before it answers. [default: that of the endpoint]

    `none`, `minimal`, `low`, `medium`, `high` or `xhigh`, as far as the model supports them.
    """
    llm_seed: Annotated[int, Option("model.seed", MODEL)]
    """Seed of the endpoint's sampling, where it supports one. [default: none is sent]

    Each question gets its own seed, derived from it.
    """
    structured: Annotated[Literal["auto", "on", "off"], Option("model.structured", MODEL)]
    """Have the endpoint constrain the planner's answers to a JSON schema; `auto`: if `ksearch doctor --model` found
    that it supports that."""
    early_stop: Annotated[bool, Option("model.early_stop", MODEL)]
    """Stream answers, and stop reading soon after they are complete."""
    replay: Annotated[str, Option("model.replay", MODEL)]
    """Take the models' answers from a recorded run (name or folder), at no cost."""
    replay_misses: Annotated[Literal["refuse", "ask"], Option("model.replay_misses", MODEL)]
    """Action where the recorded run has no answer: `refuse` ends the run, `ask` calls --model."""
    mistakes: Annotated[float, Option("model.mistakes", MODEL)]
    """Share of the built-in rules' answers into which a mistake that models make is put, 0 to 1.

    See [the offline model](../guides/offline-model.md).
    """
    builders: Annotated[int, Option("workers.builders", HOST)]
    """Candidates compiled at once."""
    evaluators: Annotated[int, Option("workers.evaluators", HOST)]
    """Candidates judged at once; timing is always one at a time."""
    device: Annotated[str, Option("workers.device", HOST)]
    """Where candidates run: `cpu`, `cuda:0`, or several equal GPUs of this host: `cuda:0,cuda:1`."""
    baseline: Annotated[Literal["", "torch.compile"], Option("workers.baseline", HOST)]
    """A second program to time beside the reference, on a GPU."""
    isolation: Annotated[Isolation, Option("workers.isolation", HOST)]
    """Protection of this host from candidates: `auto` uses every mechanism that the host offers. `strict` refuses to
    build or run without seccomp, a closed network, and either Landlock or a private root.

    See the [threat model](../threat-model.md).
    """
    sync: Annotated[Literal["always", "never"], Option("sync", HOST)]
    """`always`: every event is on disk before the search acts on it. `never`: events survive a kill of the process,
    but not a power cut."""
    track: Annotated[str, Option("tracking.to", FOLLOWERS)]
    """Report the run to experiment trackers: `wandb`, `mlflow`, or both, separated by a comma. Each needs its optional
    dependency, `pip install ksearch-async[wandb]`.

    See [tracking](../guides/tracking.md).
    """
    track_project: Annotated[str, Option("tracking.project", FOLLOWERS)]
    """Project of W&B, experiment of MLflow. [default: `WANDB_PROJECT` or `MLFLOW_EXPERIMENT_NAME`, else ksearch]"""
    notify: Annotated[str, Option("notify.url", FOLLOWERS)]
    """Address of a webhook that receives notices as JSON. An address in the variable KSEARCH_NOTIFY is not saved with
    the run.

    See [notices](../guides/tracking.md#notices).
    """
    notify_on: Annotated[str, Option("notify.on", FOLLOWERS)]
    """Notices to send: `best`, `finished`, `trouble`, separated by commas. [default: all]"""
    nats: Annotated[str, Option("nats", NATS)]
    """Address of a NATS server that carries the run's jobs to its workers (for a cluster several, separated by commas;
    no credentials in it); or `embedded`: a server of this run, which workers may join. [default: none; messages stay
    in this process]

    See [many machines](../guides/distributed.md).
    """
    with_: Annotated[str, Option("workers.here", NATS)]
    """Workers in this process: `coder`, `builder`, `evaluator` (separated by commas), `all` or `none`.
    [default: all; none if --nats is an address]"""
    metrics_port: Annotated[int, Option("metrics.port", NATS)]
    """Serve metrics for Prometheus at this port; 0: a free port. Needs --nats, and
    `pip install ksearch-async[metrics]`.

    See [monitoring](../guides/distributed.md#monitoring).
    """
    metrics_host: Annotated[str, Option("metrics.host", NATS)]
    """Address to serve the metrics at; there is no authentication."""


class RunSettings(SessionSettings, total=False):
    """Settings that a run is started with."""

    effort: Annotated[Effort, Option("effort", SEARCH)]
    """How long to search: `quick` means 16 rounds, `standard` 40, `full` 120 on 8 branches. A setting given
    by itself (such as --max-rounds) overrides the preset.

    See [effort](#effort).
    """
    seed: Annotated[int, Option("seed", SEARCH)]
    """Seed of the search: decisions depend on it and on the measured results only."""
    world_model: Annotated[WorldModel, Option("search.world_model", SEARCH)]
    """`evolving`: the model revises the tree of ideas as results come in (K-Search); `frozen`: it is asked once, for
    the first actions; `off`: it is never asked, and only direct attempts and variations of the best results are
    made."""
    branches: Annotated[int, Option("search.branches", SEARCH)]
    """Number of branches of the tree that are refined at once."""
    window: Annotated[int, Option("search.stagnation_window", SEARCH)]
    """A branch ends after this many attempts in a row without improvement."""
    repair_window: Annotated[int, Option("search.repair_window", SEARCH)]
    """The same for a branch that has no correct candidate yet."""
    samples: Annotated[int, Option("search.samples", SEARCH)]
    """Candidates that are written and evaluated at once for one attempt. The best is kept; each counts as a round."""
    selection: Annotated[Literal["auto", "paper", "spread"], Option("search.selection.rule", SEARCH)]
    """How the next action is chosen. `paper`: highest V, among equals the easier action (K-Search's rule). `spread`: V
    with evidence, exploration and a penalty for actions near those in work. [default: `paper` with one branch, else
    `spread`]"""
    max_difficulty: Annotated[int, Option("search.max_difficulty", SEARCH)]
    """Harder actions (1 to 5) wait until no easier one is open."""
    confirm: Annotated[bool, Option("search.confirm", SEARCH)]
    """Measure a timed candidate a second time before it counts as the best.

    See [confirmation](../how-we-measure.md#confirmation).
    """
    edit_format: Annotated[EditFormat, Option("search.edit_format", SEARCH)]
    """How coders answer: with `whole` files, or with `search-replace` blocks against the code they see. [default: whole
    files until the code has 12,000 characters]

    An answer in the other form is accepted too.
    """
    language: Annotated[Language, Option("language", SEARCH)]
    """Language of the kernels: `cpp` (CPUs), `cuda` (GPUs), `triton` or `python` (torch modules). On a CPU, Triton's
    interpreter checks results, and nothing is timed.

    See [Triton without a GPU](../how-we-measure.md#triton-without-a-gpu) and [modules](../how-we-measure.md#modules).
    """
    threads: Annotated[int, Option("threads", SEARCH)]
    """Number of CPU threads for candidate and reference, bound to as many cores; 0: all.

    The quietest cores are taken; 0 binds to none. See [time](../how-we-measure.md#time).
    """
    measure: Annotated[Measure, Option("measure", SEARCH)]
    """Latency on a GPU: `device`, the span of a call's kernels with launches hidden behind other work; `eager`, the
    call as a user makes it on an idle device."""
    library_calls: Annotated[LibraryCalls, Option("library_calls", SEARCH)]
    """Library calls in kernels. `deny` rejects candidates that call cuBLAS or similar libraries, or operators of
    torch other than views, copies and plain elementwise ones.

    See [what candidates may call](../how-we-measure.md#what-candidates-may-call).
    """
    allow_library: Annotated[str, Option("allow_library", SEARCH)]
    """Exceptions from `deny`, separated by commas: operators (`aten::mm`), families (`matmul`), libraries
    (`cublas`)."""
    tolerance: Annotated[str, Option("tolerance", SEARCH)]
    """How far outputs may differ from the reference: `strict`, or the rule of another harness: `kernelbench`,
    `flashinfer`, `gpumode:RTOL,ATOL`.

    See [tolerance profiles](../how-we-measure.md#tolerance-profiles).
    """
    allow_trivial: Annotated[bool, Option("allow_trivial", SEARCH)]
    """Accept a task on which an answer that computes nothing would pass.

    See [is the task fit](../how-we-measure.md#is-the-task-fit).
    """
    continue_from_solution: Annotated[str, Option("continue_from.solution", SEARCH)]
    """Begin with this kernel: a source file, a run's `best` folder, or a run. It is measured first.

    It is attached below the root. See [steering](../guides/steering.md#starting-from-existing-results).
    """
    continue_from_world_model: Annotated[str, Option("continue_from.world_model", SEARCH)]
    """Begin with the tree of a run, of a file, or (`auto`) of the latest run of this task. Its results are measured
    again; if task or device differ, models see them as history."""
    score_with: Annotated[str, Option("program.evaluator", PROGRAMS)]
    """The task is a Python program, and the function `evaluate(program_path)` of this file scores it.

    See [plain Python programs](../guides/programs.md).
    """
    eval_timeout: Annotated[float, Option("program.timeout_s", PROGRAMS)]
    """Seconds that scoring one program may take."""
    eval_memory: Annotated[float, Option("program.memory_gib", PROGRAMS)]
    """Gibibytes of private memory that one program may take."""
    weight: Annotated[int, Option("weight", NATS)]
    """The run's share of the workers, relative to other runs on the same server; 1 to 1000."""
    tier: Annotated[str, Option("tier", NATS)]
    """Only coders that were started with this tier write for the run."""
    arch: Annotated[str, Option("arch", NATS)]
    """Target device, if evaluators have different ones: part of its name, or its architecture."""
    runs_dir: Annotated[str, Option("runs_dir", HOST)]
    """Folder in which the run's folder is made."""


def _texts() -> dict[str, str]:
    tables = [
        node for node in ast.parse(Path(__file__).read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)
    ]
    return {
        field.target.id: cleandoc(text.value.value)
        for table in tables
        for field, text in pairwise(table.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _settings() -> tuple[Setting, ...]:
    texts, found = _texts(), []
    for keyword, hint in get_type_hints(RunSettings, include_extras=True).items():
        kind, option = get_args(hint)
        text, _, more = texts[keyword].partition("\n\n")
        said, _, words = " ".join(text.split()).partition(" [default: ")
        found.append(
            Setting(
                keyword=keyword,
                kind=kind,
                option=option,
                help=said,
                more=" ".join(more.split()),
                words=words.rstrip("]"),
            )
        )
    return tuple(found)


_DEFAULTS = dict(flatten(msgspec.to_builtins(RunConfig(task=""))))
SETTINGS = _settings()
"""All of them. Further fields of `RunConfig` can be set in a file."""
SESSION_SETTINGS = tuple(setting for setting in SETTINGS if setting.keyword in SessionSettings.__annotations__)
"""Those that may differ when a run is resumed."""


def is_kept(flag: str) -> bool:
    """Say whether a flag (without the leading dashes) sets a value that stays as it was when a run is resumed."""
    return any(setting.flag == flag for setting in SETTINGS if setting not in SESSION_SETTINGS)


def reference_table() -> str:
    """Return the rows of the table in docs/reference/configuration.md, in the order of the fields of `RunConfig`."""
    order = list(_DEFAULTS)
    rows = []
    for setting in sorted(SETTINGS, key=lambda setting: order.index(setting.path)):
        own = setting.default or "none"
        words = f"`{own}`" if own == setting.value else own
        negative = f", `--no-{setting.flag}`" if setting.value is True else ""
        meaning = f"{setting.help} {setting.more}".strip()
        rows.append(
            f"| `{setting.path}` | `--{setting.flag}`{negative} | `{setting.variable}` | {words} | {meaning} |\n"
        )
    return _TASK_ROW + "".join(rows)


if __name__ == "__main__":
    page = _REFERENCE.read_text(encoding="utf-8")
    _REFERENCE.write_text(_TABLE.sub(lambda _: reference_table(), page), encoding="utf-8")
