"""All that a report says of one run, read from its journal once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import msgspec

from ksearch_async.chronicle import Best, BestScore, Chronicle
from ksearch_async.comparing import Entrant, entrant_of
from ksearch_async.config import SETTINGS, ModelSettings, RunConfig, flatten, load_config
from ksearch_async.runs import RunFolder
from ksearch_async.spending import Spending, spending_of
from ksearch_async.versions import Version, Versions
from messages.codec import Record
from messages.events import CandidateEvaluated, RunStarted

_NOT_OF_THE_SEARCH = ("runs_dir", "effort", "nats", "metrics.", "sync", "weight", "tier", "workers.here")
"""Settings that say where a run is done, and not what is done."""


class Dossier(msgspec.Struct, frozen=True, kw_only=True):
    """A run, for its report."""

    entrant: Entrant
    started: RunStarted
    chronicle: Chronicle
    in_use: bool
    """A process is working on it."""
    best: Best | BestScore | None
    evaluation: CandidateEvaluated | None
    """The verdict that the best kernel counts for."""
    kernel: Version | None
    base: Version | None
    """What the best kernel was started from; null: the reference."""
    spending: Spending
    commands: tuple[str, ...]
    """Which do the same again."""
    unsaid: tuple[str, ...]
    """Settings that these cannot say, since no flag has them."""
    has_config: bool
    """They are by the run's own configuration; else by its journal, which knows no endpoints and no paths."""


def dossier_of(folder: RunFolder, records: Sequence[Record]) -> Dossier:
    """Put together what there is to be said of a run.

    Raises:
        ConfigError: it has not begun.
    """
    entrant = entrant_of(folder.run_id, records)
    versions = Versions(records)
    chronicle = versions.chronicle
    started = chronicle.started
    assert started is not None, "a run that has begun has its first event"  # noqa: S101 - `entrant_of` has looked
    best = chronicle.best("")
    base, kernel = versions.pair(None, None) if best is not None else (None, None)
    config = load_config(folder.config) if folder.config.exists() else _config_of(entrant, started, chronicle)
    return Dossier(
        entrant=entrant,
        started=started,
        chronicle=chronicle,
        in_use=folder.in_use(),
        best=best,
        evaluation=_evaluation_of(records, best.candidate_id) if best else None,
        kernel=kernel,
        base=base,
        spending=spending_of(records),
        commands=tuple(_commands(folder.run_id, config)),
        unsaid=tuple(_unsaid(config)),
        has_config=folder.config.exists(),
    )


def _evaluation_of(records: Sequence[Record], candidate_id: str) -> CandidateEvaluated | None:
    """Return the last verdict that counts: of a confirmation where there was one."""
    found = [
        record.body
        for record in records
        if isinstance(record.body, CandidateEvaluated) and record.body.candidate_id == candidate_id
    ]
    return next((one for one in reversed(found) if one.verdict.__struct_config__.tag in ("measured", "scored")), None)


def _config_of(entrant: Entrant, started: RunStarted, chronicle: Chronicle) -> RunConfig:
    """Return what can be told from a journal alone."""
    names = entrant.trace.head.models
    return RunConfig(
        task=started.task.name,
        language=started.description.language,
        seed=started.seed,
        search=chronicle.state.settings if chronicle.state.run_id else started.settings,
        model=ModelSettings(name=names[0] if names else None),
    )


def _commands(run_id: str, config: RunConfig) -> Iterator[str]:
    yield shlex.join(["ksearch", "run", config.task, *_flags(config)])
    yield shlex.join(["ksearch", "replay", run_id])
    yield shlex.join(["ksearch", "eval", run_id])


def _flags(config: RunConfig) -> Iterator[str]:
    """Yield the flags for what is not as it is by default."""
    usual = dict(flatten(msgspec.to_builtins(RunConfig(task=config.task))))
    ours = dict(flatten(msgspec.to_builtins(config)))
    for setting in SETTINGS:
        value = ours.get(setting.path)
        if setting.path.startswith(_NOT_OF_THE_SEARCH) or value is None or value == usual.get(setting.path):
            continue
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{setting.flag}"
        else:
            yield from (f"--{setting.flag}", str(value))


def _unsaid(config: RunConfig) -> Iterator[str]:
    """Yield the settings that are not as by default and that no flag has: they stand in a file."""
    flags = {setting.path for setting in SETTINGS}
    usual = dict(flatten(msgspec.to_builtins(RunConfig(task=config.task))))
    for path, value in flatten(msgspec.to_builtins(config)):
        if path not in flags and path != "task" and value != usual.get(path):
            yield f"{path} = {value}"
