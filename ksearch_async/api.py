"""The Python interface: a search as one call. The command line adds signals, screens and exit codes.

Nothing here writes to stdout or stderr, installs signal handlers or configures `logging`. `KSEARCH_…` settings of the
environment are the command line's; only keys are read from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, TypeAlias, Unpack

import anyio
import anyio.to_thread
import msgspec
import structlog

from ksearch_async.errors import refusal, refuse_event_loop, single_error, suggestion
from ksearch_async.evaluation.candidates import written_candidate
from ksearch_async.follow.beside import accompanied
from ksearch_async.follow.logs import pass_to_logging
from ksearch_async.runs.folder import RunFolder, find_run, read_run
from ksearch_async.runs.resume import Lead, Opening, Session, StopSwitch, open_session, reopen_session
from ksearch_async.runs.run import DUPLICATE, Best, BestScore, Run
from ksearch_async.settings.options import SETTINGS, RunSettings, SessionSettings
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.run_config import RunConfig, load_config
from ksearch_async.views.events import events_of
from messages.base import BoundaryError, Language, Usage
from messages.codec import Record
from messages.facts import StoppedBy
from messages.tasks import SourceFile

PathLike: TypeAlias = str | os.PathLike[str]
OnEvent: TypeAlias = Callable[[Mapping[str, Any]], object]
"""Called on the event loop with each event as `ksearch run --json` prints it: `kind`, `seq`, `at` and its fields."""

log = structlog.get_logger(__name__)


class FoundKernel(Best, frozen=True, kw_only=True):
    """The best candidate of a run, with its source."""

    language: Language
    entry_point: str
    files: tuple[SourceFile, ...]
    """Its files, each with `path` and `text`; the first is the main one."""

    @property
    def source(self) -> str:
        """The main file's text."""
        return self.files[0].text


class FoundProgram(BestScore, frozen=True, kw_only=True):
    """The best program of a run of a program task, with its source."""

    files: tuple[SourceFile, ...]

    @property
    def source(self) -> str:
        """The main file's text."""
        return self.files[0].text


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """State of a run: at its end, or where it was left."""

    run_id: str
    path: Path
    """The run's folder, which `resume` and `ksearch resume` accept."""
    task: str
    rounds: int
    """Evaluations spent."""
    stopped_by: StoppedBy | None
    """The reason of its end; None if it was killed or is still running."""
    detail: str
    elapsed_s: float
    """Wall-clock, over all sessions."""
    fates: Mapping[str, int]
    """Attempts by status: `measured`, `wrong`, `did_not_build`, …. Known programs are not counted."""
    usage: Usage
    """Calls and tokens of the model, over all sessions."""
    best: FoundKernel | None = None
    """The incumbent; null if no candidate was correct and timed."""
    untimed: tuple[str, ...] = ()
    """Ids of candidates that are correct but could not be timed here; each is in `path / "candidates" / id`."""
    best_program: FoundProgram | None = None
    """The incumbent of a task that is a plain program."""

    @property
    def found(self) -> bool:
        """Return True if something better was found; for kernels, if the speedup's whole interval is above 1."""
        best = self.best or self.best_program
        return best is not None and best.faster


async def search(
    task: PathLike | RunConfig,
    *,
    config_file: PathLike | None = None,
    on_event: OnEvent | None = None,
    stop: StopSwitch | None = None,
    **settings: Unpack[RunSettings],
) -> SearchResult:
    """Search for a faster kernel until the budget is used up or the search ends otherwise.

    Runs on asyncio. Cancelling it stops at once, ends all processes, and leaves a folder that `resume` can continue.

    Args:
        task: a bundled problem's name, the path of a problem file, or a whole configuration.
        config_file: TOML, as for `ksearch run -c`.
        on_event: called with every event; an exception that it raises ends the search as a cancellation does, and is
            raised.
        stop: `stop.ask()` ends the search when the evaluations in flight are done.
        **settings: see `RunSettings`; they take precedence over the file and over a configuration's own values.

    Raises:
        ConfigError: task, settings, compiler or folder cannot be used; nothing was started.
        BoundaryError: model endpoint, evaluator or disk failed; a note names the folder of the run, if it had begun.
    """
    saved = task if isinstance(task, RunConfig) else None
    config = resolve_config(
        None if isinstance(task, RunConfig) else os.fspath(task),
        config_file=None if config_file is None else Path(config_file),
        environment={},
        flags=_flags(settings),
        saved=saved,
    )
    return await _conducted(open_session(config), on_event, stop)


def run(
    task: PathLike | RunConfig,
    *,
    config_file: PathLike | None = None,
    on_event: OnEvent | None = None,
    **settings: Unpack[RunSettings],
) -> SearchResult:
    """Do what `search` does, from synchronous code. Ctrl-C stops at once and raises `KeyboardInterrupt`.

    Raises:
        ConfigError: as `search`; or an event loop runs in this thread, where only `await search(…)` can be used.
        BoundaryError: as `search`.
    """
    refuse_event_loop("ksearch_async.run()", "await ksearch_async.search(…)")
    return anyio.run(partial(search, task, config_file=config_file, on_event=on_event, **settings))


async def resume(
    run: PathLike,
    *,
    runs_dir: PathLike = "runs",
    on_event: OnEvent | None = None,
    stop: StopSwitch | None = None,
    **settings: Unpack[SessionSettings],
) -> SearchResult:
    """Continue a run that was stopped, cancelled or killed; nothing in its journal is done again.

    A run that is over is returned unchanged, unless its budget is raised.

    Args:
        run: its folder, its id, or `latest`.
        runs_dir: folder in which ids are found.
        on_event: as in `search`; called with this session's events.
        stop: as in `search`.
        **settings: settings that differ from the saved configuration.

    Raises:
        ConfigError: there is no such run, or it would not be the same run.
        BoundaryError: as `search`; or the journal is damaged, or in use by another process.
    """
    folder = find_run(os.fspath(run), Path(runs_dir))
    saved = load_config(folder.config)
    config = resolve_config(environment={}, flags=_flags(settings), saved=saved)
    return await _conducted(reopen_session(folder, config), on_event, stop)


def load_result(run: PathLike, *, runs_dir: PathLike = "runs") -> SearchResult:
    """Read the state of a run from its folder, which may be in use.

    Raises:
        ConfigError: there is no such run.
        BoundaryError: its journal is damaged, or written by a newer release.
    """
    folder = find_run(os.fspath(run), Path(runs_dir))
    return _result(folder, read_run(folder))


async def _conducted(opening: Opening, on_event: OnEvent | None, stop: StopSwitch | None) -> SearchResult:
    pass_to_logging()
    with single_error():
        async with opening as (session, lead):
            if not session.is_over:
                await _led(session, lead, on_event, stop)
    finished = session.chronicle.finished
    if finished is not None and finished.stopped_by == "infrastructure":
        raise _resumable(BoundaryError(f"the infrastructure failed: {finished.detail}"), session)
    return await anyio.to_thread.run_sync(_result, session.folder, session.chronicle)


async def _led(session: Session, lead: Lead, on_event: OnEvent | None, stop: StopSwitch | None) -> None:
    def tell(record: Record) -> None:
        session.chronicle.fold(record)
        if on_event is not None:
            for event in events_of(record):
                on_event(event)

    try:
        with single_error():
            await accompanied(session, lead, say=log.info)(tell=tell, stop=stop)
    except BoundaryError as error:
        raise _resumable(error, session) from error.__cause__


def _resumable(error: BoundaryError, session: Session) -> BoundaryError:
    error.add_note(f"the run can go on: ksearch resume {quote(str(session.folder.path))}")
    return error


def _result(folder: RunFolder, chronicle: Run) -> SearchResult:
    finished, best, started = chronicle.finished, chronicle.best(str(folder.best)), chronicle.started
    return SearchResult(
        run_id=folder.run_id,
        path=folder.path,
        task=started.task.name if started else "",
        rounds=chronicle.state.rounds,
        stopped_by=finished.stopped_by if finished else None,
        detail=finished.detail if finished else "",
        elapsed_s=chronicle.elapsed_s,
        fates={fate: count for fate, count in chronicle.fates.items() if fate != DUPLICATE},
        usage=chronicle.state.usage,
        untimed=chronicle.untimed(),
        best=_kernel(best, folder) if isinstance(best, Best) else None,
        best_program=_program(best, folder) if isinstance(best, BestScore) else None,
    )


def _kernel(best: Best, folder: RunFolder) -> FoundKernel:
    candidate = written_candidate(folder.journal, best.candidate_id)
    return FoundKernel(
        **msgspec.structs.asdict(best),
        language=candidate.language,
        entry_point=candidate.entry_point,
        files=candidate.files,
    )


def _program(best: BestScore, folder: RunFolder) -> FoundProgram:
    candidate = written_candidate(folder.journal, best.candidate_id)
    return FoundProgram(**msgspec.structs.asdict(best), files=candidate.files)


def _flags(settings: Mapping[str, object]) -> dict[str, object]:
    """Return keyword and `=` → value, as `resolve_config` takes them."""
    known = sorted(setting.keyword for setting in SETTINGS)
    for name in settings:
        if name not in known:
            raise refusal(f"unknown setting {name!r}", suggestion(name, known, f"known are: {', '.join(known)}"))
    return {f"{name}=": value for name, value in settings.items()}
