"""The Python interface: a search as one call. What the command line adds is signals, screens and exit codes.

Nothing here writes to stdout or stderr, installs signal handlers or configures `logging`. `KSEARCH_…` settings of the
environment are the command line's; only keys are read from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Literal, TypeAlias, TypedDict, Unpack

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.llm.base import ReasoningEffort
from ksearch_async.errors import refusal, refuse_event_loop, single_error, suggestion
from ksearch_async.evaluation.sources import written_candidate
from ksearch_async.follow.beside import accompanied
from ksearch_async.follow.logs import pass_to_logging
from ksearch_async.runs.folder import RunFolder, find_run, read_run
from ksearch_async.runs.run import DUPLICATE, Best, BestScore, Run
from ksearch_async.runs.session import Lead, Opening, Session, StopSwitch, open_session, reopen_session
from ksearch_async.settings.resolve import resolve_config
from ksearch_async.settings.table import SETTINGS, ModelKind, RunConfig, load_config
from ksearch_async.views.events import events_of
from messages.base import BoundaryError, EditFormat, Isolation, Language, Usage
from messages.codec import Record
from messages.facts import StoppedBy
from messages.models import Choice
from messages.tasks import SourceFile

PathLike: TypeAlias = str | os.PathLike[str]
OnEvent: TypeAlias = Callable[[Mapping[str, Any]], object]
"""Called on the event loop with each event as `ksearch run --json` prints it: `kind`, `seq`, `at` and its fields."""

log = structlog.get_logger(__name__)


class SessionSettings(TypedDict, total=False):
    """What may differ from one session of a run to the next; named as the command line's flags."""

    max_rounds: int
    """Evaluations to spend in all."""
    max_seconds: float
    """Wall-clock, over all sessions."""
    max_calls: int
    """Answers of the model."""
    max_tokens: int
    """Prompt and completion tokens, over all calls."""
    target_speedup: float
    """Stop once the best kernel's credit (its interval's lower bound) reaches it."""
    model: str
    """The endpoint's name of the model. Without one, built-in rules plan and write."""
    base_url: str
    """Address of an OpenAI-compatible endpoint."""
    model_kind: ModelKind
    """How answers are had: see `ksearch run --help`."""
    concurrency: int
    """Model calls in flight at once."""
    requests_per_minute: int
    """Of an endpoint; without it as often as it bears."""
    tokens_per_minute: int
    """Likewise, prompts and answers together."""
    planner_model: str
    """The model that plans, if it is another one."""
    planner_base_url: str
    coder_model: str
    """The model that writes, if it is another one; or several, with weights: `small=3,large`."""
    coder_base_url: str
    coder_choice: Choice
    """How one of several is chosen."""
    prices: str
    """A file of prices."""
    max_cost: float
    """US dollars for models."""
    timeout: float
    """Seconds that one model call may take, with all its tries."""
    temperature: float
    max_answer_tokens: int
    """Of one answer, hidden reasoning included."""
    reasoning_effort: ReasoningEffort
    llm_seed: int
    """Of the endpoint's draws, where it has such."""
    structured: Literal["auto", "on", "off"]
    """Whether the endpoint is to hold the planner's answers to a JSON schema."""
    early_stop: bool
    """Answers are streamed, and not read on long after they are whole."""
    replay: str
    """A recorded run that answers, by name or folder."""
    replay_misses: Literal["refuse", "ask"]
    """What becomes of questions that it was not asked."""
    mistakes: float
    """Share of the built-in rules' answers that are spoiled, 0 to 1."""
    builders: int
    """Candidates compiled at once."""
    evaluators: int
    """Candidates judged at once."""
    device: str
    """Where candidates run: `cpu`, `cuda:0`, or several GPUs of this host: `cuda:0,cuda:1`."""
    baseline: Literal["", "torch.compile"]
    """A second program that is timed beside the reference, on a GPU."""
    isolation: Isolation
    """How candidates are kept from this host: `auto`, by what it has; `strict`, not run with less than it takes."""
    sync: Literal["always", "never"]
    with_: str
    """Which of `coder`, `builder` and `evaluator` work in this process, with commas; `all`, or `none`."""
    nats: str
    """`embedded`, or the addresses of a NATS server or cluster, with commas."""
    metrics_port: int
    """Over NATS: where Prometheus may read."""
    metrics_host: str
    track: str
    """Experiment trackers that are told of the run: `wandb`, `mlflow`, or both with a comma."""
    track_project: str
    notify: str
    """Address of a webhook that gets notices of the run."""
    notify_on: str
    """Of what, with commas: `best`, `finished`, `trouble`."""


class RunSettings(SessionSettings, total=False):
    """What a run is started with; docs/reference/configuration.md has defaults and meaning of each."""

    effort: Literal["quick", "standard", "full"]
    world_model: Literal["evolving", "frozen", "off"]
    branches: int
    """Branches of the tree refined at once."""
    window: int
    """A branch ends after so many attempts in a row without improvement."""
    repair_window: int
    """The same as long as it has no correct candidate."""
    samples: int
    """Drafts of one attempt that are written and evaluated at once."""
    selection: Literal["auto", "paper", "spread"]
    max_difficulty: int
    confirm: bool
    """Measure a timed candidate a second time before it counts as the best."""
    edit_format: EditFormat
    """How coders answer: with `whole` files, or `search-replace` blocks; `auto`: by the length of the code."""
    language: str
    threads: int
    """On how many CPU threads candidate and reference run, bound to as many cores; 0: on all."""
    tolerance: str
    """`strict`, `kernelbench`, `flashinfer`, or `gpumode:RTOL,ATOL`."""
    measure: Literal["device", "eager"]
    """What counts as latency on a GPU: the span of a call's kernels, or the call on an idle device."""
    library_calls: Literal["allow", "deny"]
    """Whether a library may do the kernels' work."""
    allow_library: str
    """What of it is allowed though the rest is not, with commas."""
    allow_trivial: bool
    """Take a task on though an answer that computes nothing would pass."""
    continue_from_solution: str
    """A kernel to begin with: a source file, a run's `best` folder, or a run."""
    continue_from_world_model: str
    """A tree to begin with: a run, a file, or `auto`."""
    score_with: str
    """The task is a Python program, and the `evaluate(program_path)` of this file scores it."""
    eval_timeout: float
    """Seconds that scoring one program may take."""
    eval_memory: float
    """Gibibytes that one program may take."""
    seed: int
    weight: int
    """The run's share of the workers, beside other runs on the same server."""
    tier: str
    """Which coders write for the run."""
    arch: str
    """Device or architecture that the run is for, where evaluators of several are there."""
    runs_dir: str
    """Folder that the run's own folder is made in."""


class FoundKernel(Best, frozen=True, kw_only=True):
    """The best candidate of a run, with its source."""

    language: Language
    entry_point: str
    files: tuple[SourceFile, ...]
    """Each with `path` and `text`; the first is the main one."""

    @property
    def source(self) -> str:
        """The main file's text."""
        return self.files[0].text


class FoundProgram(BestScore, frozen=True, kw_only=True):
    """The best program of a run whose task is a plain program, with its source."""

    files: tuple[SourceFile, ...]

    @property
    def source(self) -> str:
        """The main file's text."""
        return self.files[0].text


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands: at its end, or where it was left."""

    run_id: str
    path: Path
    """The run's folder; `resume` and `ksearch resume` take it."""
    task: str
    rounds: int
    """Evaluations spent."""
    stopped_by: StoppedBy | None
    """What ended it; null if it was killed or is still going on."""
    detail: str
    elapsed_s: float
    """Wall-clock, over all sessions."""
    fates: Mapping[str, int]
    """Attempts by fate: `measured`, `wrong`, `did_not_build`, …; not counted: what had been written before."""
    usage: Usage
    """Calls and tokens of the model, over all sessions."""
    best: FoundKernel | None = None
    """The incumbent; null if no candidate was correct and timed."""
    untimed: tuple[str, ...] = ()
    """Ids of candidates that are correct and could not be timed here; each lies in `path / "candidates" / id`."""
    best_program: FoundProgram | None = None
    """The incumbent where the task is a plain program."""

    @property
    def found(self) -> bool:
        """Say whether something better was found: for kernels, the speedup's whole interval lies above 1."""
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
    """Search for a faster kernel until the budget is used up or something else ends it.

    Runs on asyncio. Cancelling it stops at once, ends all processes, and leaves a folder that `resume` goes on with.

    Args:
        task: a bundled problem's name, the path of a problem file, or a whole configuration.
        config_file: TOML, as `ksearch run -c` takes it.
        on_event: told of every event; what it raises ends the search as a cancellation does, and is raised.
        stop: `stop.ask()` ends the search when the evaluations in flight are done.
        **settings: see `RunSettings`; they count before the file, and before a configuration's own values.

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
    """Do what `search` does, from code that is not asynchronous. Ctrl-C stops at once and raises `KeyboardInterrupt`.

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
    """Go on with a run that was stopped, cancelled or killed; nothing that its journal holds is done again.

    A run that is over is returned as it is, unless its budget is raised.

    Args:
        run: its folder, its id, or `latest`.
        runs_dir: where ids are looked for.
        on_event: as in `search`; told of this session's events.
        stop: as in `search`.
        **settings: what is to differ from the saved configuration.

    Raises:
        ConfigError: there is no such run, or it would not be the same run.
        BoundaryError: as `search`; or the journal is damaged, or in use by another process.
    """
    folder = find_run(os.fspath(run), Path(runs_dir))
    saved = load_config(folder.config)
    config = resolve_config(environment={}, flags=_flags(settings), saved=saved)
    return await _conducted(reopen_session(folder, config), on_event, stop)


def load_result(run: PathLike, *, runs_dir: PathLike = "runs") -> SearchResult:
    """Read how a run stands from its folder, which may be in use.

    Raises:
        ConfigError: there is no such run.
        BoundaryError: its journal is damaged or a newer release's.
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
