"""The settings of a run: names, types, defaults, and which of them may change on resume.

Settings with a flag are described where the flag is declared, in `options.py`; the others here.

`[model]` in the file is for both; `[model.planner]` and `[model.coder]` say what differs, and each of
`[[model.coder.members]]` what differs for one of several models that write.

Secrets have no field here: keys are read from the environment where a model is made, and are never written or printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from actors.llm.base import ReasoningEffort
from evaluators.tasks import is_gone
from ksearch_async.errors import refusal
from ksearch_async.settings.effort import Effort
from messages.base import EditFormat, Isolation, Language
from messages.models import Choice
from messages.settings import Positive, SearchSettings, Share
from messages.tasks import LibraryCalls, Measure

ROLE_KEY_VARIABLES: Mapping[Literal["planner", "coder"], str] = {
    "planner": "KSEARCH_PLANNER_API_KEY",
    "coder": "KSEARCH_CODER_API_KEY",
}
"""Where a role's own key is looked for first."""

TIER_PATTERN = "^[a-z0-9][a-z0-9-]{0,31}$"
EndpointKind: TypeAlias = Literal["auto", "offline", "chat", "responses"]
Dialect: TypeAlias = Literal["offline", "chat", "responses", "replay", "manual"]


class Overrides(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Own settings of one role; None: those of `[model]`."""

    kind: EndpointKind | None = None
    name: str | None = None
    base_url: str | None = None
    key_variable: str | None = None
    """Environment variable that holds the key."""
    concurrency: Positive | None = None
    """This and the next two are the endpoint's: of roles that share one the smallest counts."""
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Positive | None = None
    reasoning_effort: ReasoningEffort | None = None
    seed: int | None = None
    structured: Literal["auto", "on", "off"] | None = None
    early_stop: bool | None = None


class WriterOverrides(Overrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Own settings of coders."""

    edit_format: EditFormat | None = None
    """In which form it answers; null: as `[search]` says."""


class Member(WriterOverrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several models that write."""

    weight: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 1.0
    """Its share of the candidates, with `choice = "weights"`."""
    tier: Annotated[str, msgspec.Meta(pattern=TIER_PATTERN)] | None = None
    """Which coders have it, where they are processes of their own; null: those of the run's tier."""


class CoderSettings(WriterOverrides, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Differences for coders. `name` may list several, with commas: `small=3,large`."""

    choice: Choice = "weights"
    """How one of several is chosen: by weights, or (`bandit`) by which brings correct and faster kernels for least."""
    members: tuple[Member, ...] = ()
    """Several models with settings of their own."""


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """A model that writes, with all that is set for it."""

    settings: ModelSettings
    weight: float = 1.0
    tier: str = ""
    edit_format: EditFormat | None = None


def planner_settings(model: ModelSettings, environment: Mapping[str, str]) -> ModelSettings:
    """Return all that is set for who plans."""
    return _bare(_with(_keyed(model, "planner", environment), model.planner))


def writers(model: ModelSettings, environment: Mapping[str, str]) -> tuple[Writer, ...]:
    """Return who writes, one or several, each with all that is set for it.

    Raises:
        ConfigError: two have one name, or are listed in two ways.
    """
    base = _with(_keyed(model, "coder", environment), model.coder)
    members = model.coder.members
    if members and model.coder.name is not None:
        raise refusal("coder models are listed in [[model.coder.members]] and named besides", "leave one of both out")
    if not members and base.name is not None and ("," in base.name or "=" in base.name):
        members = _listed(base.name)
    if not members:
        return (Writer(settings=_bare(base), edit_format=model.coder.edit_format),)
    found = tuple(
        Writer(
            settings=_bare(_with(base, member)),
            weight=member.weight,
            tier=member.tier or "",
            edit_format=member.edit_format or model.coder.edit_format,
        )
        for member in members
    )
    names = [writer.settings.name for writer in found]
    for name in names:
        if name is None:
            raise refusal("a coder model has no name", "each of [[model.coder.members]] needs a `name`")
        if names.count(name) > 1:
            raise refusal(f"coder model {name!r} is listed twice", "give each once, with its weight")
    return found


def _listed(text: str) -> tuple[Member, ...]:
    members = []
    for word in text.split(","):
        name, equals, weight = word.strip().partition("=")
        try:
            members.append(msgspec.convert({"name": name, "weight": float(weight) if equals else 1.0}, Member))
        except (ValueError, msgspec.ValidationError) as error:
            raise refusal(
                f"--coder-model {text!r}: {word!r} is no model with a weight", "write NAME=3,OTHER"
            ) from error
        if not name:
            raise refusal(f"--coder-model {text!r}: a name is missing", "write NAME=3,OTHER")
    return tuple(members)


def _keyed(model: ModelSettings, role: Literal["planner", "coder"], environment: Mapping[str, str]) -> ModelSettings:
    variable = ROLE_KEY_VARIABLES[role]
    return msgspec.structs.replace(model, key_variable=variable) if environment.get(variable) else model


def _with(model: ModelSettings, own: Overrides) -> ModelSettings:
    said = {name: value for name in Overrides.__struct_fields__ if (value := getattr(own, name)) is not None}
    return msgspec.structs.replace(model, **said)


def _bare(model: ModelSettings) -> ModelSettings:
    """Return settings without those of roles: they are in it by now."""
    return msgspec.structs.replace(model, planner=Overrides(), coder=CoderSettings())


API_KEY_VARIABLES = ("KSEARCH_API_KEY", "OPENAI_API_KEY", "LLM_API_KEY")
"""Where a key is looked for, in this order; the last is K-Search's."""

OTHER_VARIABLES = frozenset(
    {
        "KSEARCH_NATS_CREDENTIALS", "KSEARCH_NATS_USER", "KSEARCH_NATS_PASSWORD", "KSEARCH_NATS_PASSWORD_FILE",
        "KSEARCH_NATS_NKEY_FILE", "KSEARCH_NATS_CA", "KSEARCH_NATS_CERT", "KSEARCH_NATS_KEY", "KSEARCH_NATS_SERVER",
        "KSEARCH_LOG_FORMAT", "KSEARCH_TRACING", "KSEARCH_NOTIFY", "KSEARCH_NOTIFY_SECRET",
        "KSEARCH_KERNELBENCH", "KSEARCH_EXPORT_CACHE",
    }
)  # fmt: skip
"""Ours, and no settings of a run: who signs in at a server (`ksearch_async.fleet.access`), how a process is
observed, where
its notices go (`ksearch_async.follow.notices`), where problems lie, and where what was exported is built."""

FOREIGN_VARIABLES = frozenset({"KSEARCH_ROOT"})
"""Begin like ours and are not: K-Search's launch scripts have them set to its checkout."""

DEFAULT_RUNS_DIR = "runs"

Seconds = Annotated[float, msgspec.Meta(gt=0)]
ModelKind: TypeAlias = Literal["auto", "offline", "chat", "responses", "replay", "manual"]


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model plans and writes."""

    kind: ModelKind = "auto"
    name: str | None = None
    base_url: str | None = None
    key_variable: str | None = None
    """Environment variable that holds the key; null: the role's, else one of `API_KEY_VARIABLES`."""
    concurrency: Positive = 8
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    timeout_s: Seconds = 600.0
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    max_tokens: Positive | None = None
    reasoning_effort: ReasoningEffort | None = None
    seed: int | None = None
    structured: Literal["auto", "on", "off"] = "auto"
    early_stop: bool = True
    replay: str | None = None
    replay_misses: Literal["refuse", "ask"] = "refuse"
    mistakes: Share = 0.0
    prices: str | None = None
    planner: Overrides = Overrides()
    """Differences for planners."""
    coder: CoderSettings = CoderSettings()
    """Differences for coders."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs of each kind this process does at once."""

    builders: Positive = 2
    evaluators: Positive = 2
    device: str = "cpu"
    baseline: Literal["", "torch.compile"] = ""
    isolation: Isolation = "auto"
    here: str | None = None


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How plain Python programs are scored."""

    evaluator: str | None = None
    timeout_s: Seconds = 60.0
    memory_gib: Annotated[float, msgspec.Meta(gt=0)] = 8.0


class ContinueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Earlier results that a run begins with."""

    solution: str | None = None
    world_model: str | None = None


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Prometheus may read how a run over NATS is doing, and those who work on it."""

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    host: str = "127.0.0.1"


class TrackingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Experiment trackers of the run; credentials come from the environment (`WANDB_API_KEY`, …)."""

    to: str | None = None
    project: str | None = None
    group: str | None = None
    """Common label of runs that belong together, such as the seeds of one experiment."""
    tags: tuple[str, ...] = ()
    patience_s: Seconds = 60.0
    """How long a session that is over waits for them."""


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notices of a run go: a webhook."""

    url: str | None = None
    on: str = "best,finished,trouble"
    timeout_s: Seconds = 10.0
    """Of one try."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a run is started with."""

    task: str
    """A bundled problem's name, or the path of a problem file or of a program."""
    effort: Effort = "standard"
    language: Language = "cpp"
    seed: int = 0
    runs_dir: str = DEFAULT_RUNS_DIR
    sync: Literal["always", "never"] = "always"
    search: SearchSettings = SearchSettings()
    model: ModelSettings = ModelSettings()
    workers: WorkerSettings = WorkerSettings()
    nats: str | None = None
    weight: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    tier: Annotated[str, msgspec.Meta(pattern="^[a-z0-9][a-z0-9-]{0,31}$")] = "default"
    threads: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0
    arch: str | None = None
    tolerance: str = "strict"
    """How far outputs may lie from the reference: a profile of `evaluators.judge.check.tolerances`."""
    measure: Measure = "device"
    library_calls: LibraryCalls = "deny"
    allow_library: str = ""
    allow_trivial: bool = False
    program: ProgramSettings = ProgramSettings()
    continue_from: ContinueSettings = ContinueSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracking: TrackingSettings = TrackingSettings()
    notify: NotifySettings = NotifySettings()

    @property
    def candidate_language(self) -> Language:
        """Language of candidates: programs are Python, also where another language is set for kernels."""
        return self.language if self.program.evaluator is None else "python"


MAY_CHANGE = ("search.budget.", "model.", "workers.", "sync", "runs_dir", "nats", "metrics.", "tracking.", "notify.")
"""Settings that may differ when a run is resumed; a trailing dot means the whole table."""


def load_config(path: Path) -> RunConfig:
    """Read the configuration that a run saved.

    Raises:
        ConfigError: it is missing or damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunConfig)
    except OSError as error:
        raise refusal(f"cannot read {str(path)!r}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise refusal(f"{str(path)!r} is no configuration of a run: {error}") from error


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration as JSON for people; the file is always a whole one, the old or the new.

    Raises:
        ConfigError: it cannot be written there.
    """
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
        fresh.replace(path)
    except OSError as error:
        raise refusal(f"cannot write {str(path)!r}: {error.strerror}") from error


def changed_keys(before: RunConfig, after: RunConfig) -> list[str]:
    """Return which settings differ, as dotted paths."""
    old, new = (dict(flatten(msgspec.to_builtins(config))) for config in (before, after))
    return sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))


def may_change(key: str) -> bool:
    """Say whether a setting may differ when a run is resumed."""
    return any(key.startswith(allowed) if allowed.endswith(".") else key == allowed for allowed in MAY_CHANGE)


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the leaves of nested tables with their dotted paths; an empty table is a leaf."""
    for key, value in table.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def runs_dir_or_default(given: Path | None) -> Path:
    """Return the folder that holds the runs: as given, else as the environment says, else `runs`."""
    return given if given is not None else Path(os.environ.get("KSEARCH_RUNS_DIR") or DEFAULT_RUNS_DIR)


def files_gone(config: RunConfig) -> list[str]:
    """Return which files of a run's task are not there. The run needs none of them: its journal has the task."""
    return [file for file in task_files(config) if is_gone(file)]


def task_files(config: RunConfig) -> list[str]:
    """Return the files that a run's task is read from."""
    return [config.task] if config.program.evaluator is None else [config.task, config.program.evaluator]
