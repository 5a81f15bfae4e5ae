"""The configuration of a run: effort < TOML file < environment < flags, checked, resolved and saved.

Secrets have no field here: keys are read from the environment where a model is made, and are never written or printed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from actors.llm.base import ReasoningEffort
from evaluators.languages.cpp.toolchain import COMPILER_VARIABLE
from ksearch_async.refusals import refusal, suggestion
from messages.base import Language
from messages.settings import Positive, SearchSettings, Share

API_KEY_VARIABLES = ("KSEARCH_API_KEY", "OPENAI_API_KEY", "LLM_API_KEY")
"""Where a key is looked for, in this order; the last is K-Search's."""

FOREIGN_VARIABLES = frozenset({"KSEARCH_ROOT"})
"""Begin like ours and are not: K-Search's launch scripts have them set to its checkout."""

DEFAULT_RUNS_DIR = "runs"

_LARGEST_INT = 2**63 - 1
"""What a message can hold."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Effort: TypeAlias = Literal["quick", "standard", "full"]

EFFORTS: Mapping[Effort, Mapping[str, object]] = {
    "quick": {
        "search.branches": 4,
        "search.stagnation_window": 3,
        "search.max_tries": 2,
        "search.budget.max_rounds": 16,
    },
    "standard": {
        "search.branches": 4,
        "search.stagnation_window": 5,
        "search.max_tries": 3,
        "search.budget.max_rounds": 40,
    },
    "full": {
        "search.branches": 8,
        "search.stagnation_window": 7,
        "search.max_tries": 3,
        "search.budget.max_rounds": 120,
    },
}
"""What each effort stands for: dotted path → value. `standard` is the defaults; 120 rounds are what the K-Search paper
(arXiv 2602.19128) gives each run, a window of 7 what its scripts give its hardest kernels."""


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model plans and writes."""

    kind: Literal["auto", "offline", "chat"] = "auto"
    """`offline`: built-in rules, not a language model. `chat`: an OpenAI-compatible endpoint.
    `auto`: `chat` if a model is named, else `offline`."""
    name: str | None = None
    """The endpoint's name of the model."""
    base_url: str | None = None
    """Address of the endpoint; null means the openai package's default."""
    concurrency: Positive = 8
    """Calls in flight at once, planner and coders together."""
    timeout_s: Seconds = 600.0
    """Per call, with all its tries."""
    temperature: Annotated[float, msgspec.Meta(ge=0.0, le=2.0)] | None = None
    """Null, as for the next two: the endpoint's default."""
    max_tokens: Positive | None = None
    """Of one answer, hidden reasoning included; what is longer comes cut off."""
    reasoning_effort: ReasoningEffort | None = None
    mistakes: Share = 0.0
    """Share of the built-in rules' answers that get a mistake as models make them, to try a search out."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many jobs of each kind this process does at once."""

    builders: Positive = 2
    evaluators: Positive = 2
    """Candidates judged at once; timing still happens one at a time per device."""


KernelLanguage: TypeAlias = Literal["cpp", "triton"]
"""What kernels can be written in. `triton` is run by Triton's interpreter: correct or not, and not timed."""


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How plain Python programs are scored."""

    evaluator: str | None = None
    """A file that defines `evaluate(program_path)`; with it the task is the path of the program to improve."""
    timeout_s: Seconds = 60.0
    """Wall-clock limit of scoring one program."""
    memory_gib: Annotated[float, msgspec.Meta(gt=0)] = 8.0
    """Private memory that a process of a program may take."""


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a run is started with."""

    task: str
    """A bundled problem's name, or the path of a problem file or of a program."""
    effort: Effort = "standard"
    """Which preset the numbers below were taken from where nothing else set them; see `EFFORTS`."""
    language: KernelLanguage = "cpp"
    seed: int = 0
    runs_dir: str = DEFAULT_RUNS_DIR
    sync: Literal["always", "never"] = "always"
    """`always`: an event is on disk (fsync) before anybody acts on it. `never`: the operating system decides when;
    survives a crash of the process but not of the machine."""
    search: SearchSettings = SearchSettings()
    model: ModelSettings = ModelSettings()
    workers: WorkerSettings = WorkerSettings()
    program: ProgramSettings = ProgramSettings()

    @property
    def candidate_language(self) -> Language:
        """What candidates are written in: programs are Python, whatever is set for kernels."""
        return self.language if self.program.evaluator is None else "python"


class Setting(msgspec.Struct, frozen=True):
    """A setting with a flag and an environment variable of its own."""

    flag: str
    """Without the leading dashes."""
    path: str
    """Where it stands in `RunConfig`, dotted."""

    @property
    def variable(self) -> str:
        """The environment variable's name."""
        return "KSEARCH_" + self.flag.upper().replace("-", "_")

    @property
    def keyword(self) -> str:
        """The keyword's name in the Python interface."""
        return self.flag.replace("-", "_")


SETTINGS = (
    Setting("effort", "effort"),
    Setting("language", "language"),
    Setting("seed", "seed"),
    Setting("runs-dir", "runs_dir"),
    Setting("sync", "sync"),
    Setting("world-model", "search.world_model"),
    Setting("branches", "search.branches"),
    Setting("window", "search.stagnation_window"),
    Setting("max-difficulty", "search.max_difficulty"),
    Setting("max-rounds", "search.budget.max_rounds"),
    Setting("max-seconds", "search.budget.wall_clock_s"),
    Setting("max-calls", "search.budget.max_calls"),
    Setting("max-tokens", "search.budget.max_tokens"),
    Setting("target-speedup", "search.budget.target_speedup"),
    Setting("model-kind", "model.kind"),
    Setting("model", "model.name"),
    Setting("base-url", "model.base_url"),
    Setting("concurrency", "model.concurrency"),
    Setting("timeout", "model.timeout_s"),
    Setting("temperature", "model.temperature"),
    Setting("max-answer-tokens", "model.max_tokens"),
    Setting("reasoning-effort", "model.reasoning_effort"),
    Setting("mistakes", "model.mistakes"),
    Setting("builders", "workers.builders"),
    Setting("evaluators", "workers.evaluators"),
    Setting("score-with", "program.evaluator"),
    Setting("eval-timeout", "program.timeout_s"),
    Setting("eval-memory", "program.memory_gib"),
)
"""Whatever else `RunConfig` holds can be set in a file."""

MAY_CHANGE = ("search.budget.", "model.", "workers.", "sync", "runs_dir")
"""What may differ when a run is resumed; a trailing dot means the whole table."""


class Given(msgspec.Struct, frozen=True):
    """A value that somebody set."""

    value: object
    origin: str
    """`--branches`, `KSEARCH_BRANCHES`, a file's name, `effort quick`, `saved`."""


Layer: TypeAlias = Mapping[str, Given]
"""Dotted path → value."""


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration, and where it comes from."""

    config: RunConfig
    origins: dict[str, str]
    """Dotted path of every setting → `Given.origin`, or `default`."""


def resolve_config(
    task: str | None = None,
    *,
    config_file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    saved: RunConfig | None = None,
) -> RunConfig:
    """Merge defaults and effort (or a saved configuration) with file, environment and flags, and check the result.

    Args:
        task: The task as named on the command line.
        config_file: TOML, with the tables of `RunConfig`.
        environment: `KSEARCH_…` variables are read, others ignored.
        flags: Flag (see `SETTINGS`), or keyword and `=`, → value; null means not given.
        saved: What a run was started with, when it is resumed.

    Raises:
        ConfigError: what cannot be used, where it stands, and what was probably meant.
    """
    return trace_config(task, config_file=config_file, environment=environment, flags=flags, saved=saved).config


def trace_config(
    task: str | None = None,
    *,
    config_file: Path | None = None,
    environment: Mapping[str, str],
    flags: Mapping[str, object],
    saved: RunConfig | None = None,
) -> Resolved:
    """Do what `resolve_config` does, and say of each setting where its value comes from.

    Raises:
        ConfigError: as `resolve_config`.
    """
    named: dict[str, Given] = {}
    if config_file is not None:
        named.update(_read_file(config_file))
    named.update(_read_environment(environment))
    named.update(_read_flags(flags))
    if task is not None:
        named["task"] = Given(task, "argument")
    merged = {**_foundation(named, saved), **named}
    if "task" not in merged:
        raise refusal("no task given", "name a bundled problem or a problem file: ksearch run rmsnorm_silu")
    config = msgspec.convert(_nest({path: given.value for path, given in merged.items()}), RunConfig)
    origins = {
        path: merged[path].origin if path in merged else "default" for path, _ in flatten(msgspec.to_builtins(config))
    }
    return Resolved(config=config, origins=origins)


def _foundation(named: Layer, saved: RunConfig | None) -> Layer:
    """Return what lies below everything that is set by name: a saved run's numbers, or those of the effort."""
    if saved is not None:  # its effort was spent on its numbers when it was started
        return {path: Given(value, "saved") for path, value in flatten(msgspec.to_builtins(saved))}
    if "effort" not in named:
        return {}
    effort = msgspec.convert(named["effort"].value, Effort)
    return {path: Given(value, f"effort {effort}") for path, value in EFFORTS[effort].items()}


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


def _nest(flat: Mapping[str, object]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for path, value in flat.items():
        *tables, key = path.split(".")
        table = nested
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value
    return nested


def _read_file(path: Path) -> Layer:
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise refusal(f"cannot read configuration file {str(path)!r}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise refusal(f"{str(path)!r} is not TOML: {error}") from error
    layer: dict[str, Given] = {}
    for key, value in flatten(content):
        where = f"{key!r} in {str(path)!r}"
        if not (value == {} and _is_table(_type_of(key, where))):
            layer[key] = Given(_checked(value, key, where, strict=True), str(path))
    return layer


def _read_environment(environment: Mapping[str, str]) -> Layer:
    known = {setting.variable: setting for setting in SETTINGS}
    others = {*API_KEY_VARIABLES, COMPILER_VARIABLE}
    layer: dict[str, Given] = {}
    for name, text in sorted(environment.items()):
        if not name.startswith("KSEARCH_") or name in others or name in FOREIGN_VARIABLES:
            continue
        setting = known.get(name)
        if setting is None:
            hint = suggestion(name, (*known, *others), "ksearch run --help lists the settings")
            raise refusal(f"unknown environment variable {name!r}", hint)
        layer[setting.path] = Given(_checked(text, setting.path, name, strict=False), name)
    return layer


def _read_flags(flags: Mapping[str, object]) -> Layer:
    """Take flags, and keywords of the Python interface: each is told of as it was written."""
    paths = {setting.flag: (setting.path, f"--{setting.flag}") for setting in SETTINGS}
    paths |= {f"{setting.keyword}=": (setting.path, setting.keyword) for setting in SETTINGS}
    given = [(*paths[name], value) for name, value in flags.items() if value is not None]
    return {path: Given(_checked(value, path, where, strict=True), where) for path, where, value in given}


def _checked(value: object, path: str, where: str, *, strict: bool) -> object:
    """Return the value as its field wants it; `where` names its origin in the refusal."""
    kind = _type_of(path, where)
    if _is_table(kind):
        raise refusal(f"{where} is a table: write [{path}] and its keys under it")
    try:
        converted: object = msgspec.convert(value, kind, strict=strict)
    except msgspec.ValidationError as error:
        said = str(error).split(" - at ", 1)[0].split(", got ", 1)[0].replace("`", "")
        raise refusal(f"{where}: {said[:1].lower()}{said[1:]}, not {value!r}") from error
    if isinstance(converted, float) and not isfinite(converted):
        raise refusal(f"{where}: expected a finite number, not {value!r}")
    if isinstance(converted, int) and abs(converted) > _LARGEST_INT:
        raise refusal(f"{where}: expected an int of at most 64 bits, not {value!r}")
    return converted


def _type_of(path: str, where: str) -> Any:
    """Return the annotated type of the field at `path`."""
    kind: Any = RunConfig
    walked = ""
    for name in path.split("."):
        if not _is_table(kind):
            raise refusal(f"{where}: {walked.rstrip('.')!r} is a value, not a table")
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if name not in fields:
            near = suggestion(name, fields, f"known here: {', '.join(fields)}")
            raise refusal(f"unknown key {where}", near)
        kind, walked = fields[name], f"{walked}{name}."
    return kind


def _is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
