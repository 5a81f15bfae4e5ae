"""One session of a run: its start, its stop switch, its limits, and the checks before it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol, TypeAlias
from uuid import uuid4

import anyio
import msgspec

from actors.bus.base import Bus
from actors.bus.stream import body_of
from evaluators.tasks import anchored as anchored_task
from evaluators.tasks import is_bundled, is_gone, is_there
from ksearch_async.errors import refusal
from ksearch_async.fleet.workers import read_task
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Run
from ksearch_async.settings.table import ContinueSettings, RunConfig, changed_keys, may_change
from messages.base import BusError
from messages.codec import Record, encode
from messages.events import RunResumed, RunStarted, StopRequested
from messages.facts import Decided, RunFinished, SearchReopened
from messages.models import Lineup
from messages.settings import Budget

GOES_ON = frozenset({"interrupted", "infrastructure"})
"""Ends after which a run that is resumed simply goes on."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is about to start, or to go on."""

    folder: RunFolder
    config: RunConfig
    started: RunStarted
    chronicle: Run
    """The run so far."""
    opening: RunStarted | RunResumed | None
    """The session's first event; null if none is needed: somebody leads the run already, or it is over."""
    is_over: bool = False
    """Nothing is to be done."""
    address: str = ""
    """Where the run's messages go, if others can take part."""
    leads: bool = True
    """This process leads the run; if not, somebody else does, and it only watches and records."""

    @property
    def lineup(self) -> Lineup:
        """Which models the run asks from now on."""
        said = self.opening.lineup if self.opening is not None else None
        return said if said is not None else self.chronicle.state.lineup


class StopSwitch:
    """Asks a search to stop: evaluations in flight are finished, nothing new begins, the run can be resumed."""

    def __init__(self) -> None:
        self._asked = anyio.Event()
        self._reason = ""

    @property
    def was_asked(self) -> bool:
        """Say whether the search was asked to stop."""
        return self._asked.is_set()

    def ask(self, reason: str = "asked to stop") -> None:
        """Ask, from the event loop's thread (an `on_event` runs there); asking again changes nothing."""
        if not self.was_asked:
            self._reason = reason
            self._asked.set()

    async def wait(self) -> str:
        """Return the reason once the search is asked to stop."""
        await self._asked.wait()
        return self._reason


class Lead(Protocol):
    """Leads a session until its run ends, is asked to stop, or something fails. When cancelled it stops at once."""

    async def __call__(self, *, tell: Callable[[Record], None], stop: StopSwitch | None = None) -> None:
        """Lead.

        Args:
            tell: called with every record that follows those of the session's chronicle.
            stop: asks the run to stop.

        Raises:
            messages.base.KsearchError: what failed; in an exception group where several things did.
        """


Opened: TypeAlias = tuple[Session, Lead]
Opening: TypeAlias = AbstractAsyncContextManager[Opened]


class Start:
    """What the start of a session is busy with, for those who wait for it."""

    def __init__(self, say: Callable[[str], None] = lambda _text: None) -> None:
        """Begin; `say` takes lines that cannot wait."""
        self.say = say
        self.doing = "checking the reference"


async def follow(bus: Bus, run_id: str, after: int, tell: Callable[[Record], None], *, known: int = 0) -> None:
    """Tell every record until one says that the run is over, and it was not reopened up to the record `known`.

    Raises:
        messages.base.BusError: the stream ended before.
    """
    is_over = False
    events = bus.events(run_id, after=after)
    try:
        async for posted in events:
            body = body_of(posted)
            if body is not None:
                tell(Record(seq=posted.seq, at=posted.at, msg_id=posted.msg_id, body=body))
            if isinstance(body, Decided):
                is_over = isinstance(body.facts[-1], RunFinished) or (is_over and not _reopens(body))
            if is_over and posted.seq >= known:
                return
    finally:
        await events.aclose()
    raise BusError(f"the event stream of run {run_id!r} ended before the run did")


def _reopens(decided: Decided) -> bool:
    return any(isinstance(fact, SearchReopened) for fact in decided.facts)


async def heed(stop: StopSwitch, bus: Bus, run_id: str) -> None:
    """Have the run stop when it is asked to."""
    requested = StopRequested(reason=await stop.wait())
    await bus.publish(run_id, encode(requested), msg_id=f"{run_id}.stop-{uuid4().hex}")


def is_spent(chronicle: Run, budget: Budget) -> bool:
    """Say whether a run is over for good, with this budget."""
    finished = chronicle.finished
    return finished is not None and finished.stopped_by not in GOES_ON and budget == chronicle.state.settings.budget


def anchored(config: RunConfig) -> RunConfig:
    """Return the configuration with paths that mean the same from every folder."""
    task = config.task if is_bundled(config.task) else anchored_task(config.task)
    program = config.program
    if program.evaluator is not None:
        program = msgspec.structs.replace(program, evaluator=_absolute(program.evaluator))
    model = config.model
    if model.replay is not None and Path(model.replay).expanduser().exists():
        model = msgspec.structs.replace(model, replay=_absolute(model.replay))
    begin, runs_dir = config.continue_from, _absolute(config.runs_dir)
    begin = ContinueSettings(solution=_anchored(begin.solution), world_model=_anchored(begin.world_model))
    return msgspec.structs.replace(
        config, task=task, program=program, model=model, continue_from=begin, runs_dir=runs_dir
    )


def _anchored(name: str | None) -> str | None:
    """Return a path as an absolute one, and a run's name as it is."""
    return _absolute(name) if name is not None and Path(name).expanduser().exists() else name


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


def check_same_run(saved: RunConfig, config: RunConfig, started: RunStarted) -> None:
    """Refuse what would make it another run.

    Raises:
        ConfigError: names what has changed.
    """
    origin = msgspec.structs.replace(saved, search=started.settings, seed=started.seed)
    if started.task.source != "program":
        origin = msgspec.structs.replace(origin, language=started.description.language)
    changed = [key for key in changed_keys(origin, config) if not may_change(key)]
    if changed:
        raise refusal(
            f"{', '.join(changed)} differ{'s' if len(changed) == 1 else ''} from what run {started.run_id!r} "
            "was started with",
            "budget, model, workers and sync may change; for anything else start a new run",
        )
    files = _task_files(config)
    if all(is_bundled(file) or is_there(file) for file in files) and read_task(config).task_id != started.task.task_id:
        raise refusal(
            f"problem {' or '.join(map(repr, files))} has changed since run {started.run_id!r} was started",
            "put it back, or start a new run",
        )


def files_gone(config: RunConfig) -> list[str]:
    """Return which files of a run's task are not there. The run needs none of them: its journal has the task."""
    return [file for file in _task_files(config) if is_gone(file)]


def _task_files(config: RunConfig) -> list[str]:
    return [config.task] if config.program.evaluator is None else [config.task, config.program.evaluator]


def check_messages_stay(saved: RunConfig, config: RunConfig, run_id: str) -> None:
    """Refuse to take a run elsewhere: its messages are where they are. A server's address may change.

    Raises:
        ConfigError: says where they are.
    """
    kinds = [_place(each.nats) for each in (saved, config)]
    if kinds[0] != kinds[1]:
        raise refusal(
            f"run {run_id!r} has its messages {kinds[0]}, and cannot go on with them {kinds[1]}",
            "leave --nats out",
        )


def _place(nats: str | None) -> str:
    if nats is None:
        return "in its folder"
    return "in a server of its own" if nats == "embedded" else "on a server"
