"""How a search in progress is shown: lines for people, or one JSON object per line for programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from shlex import quote
from textwrap import wrap
from typing import Protocol

import anyio
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus

from evaluators.process.device_lease import waits
from evaluators.tasks import is_bundled
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Run
from ksearch_async.settings.models import dialect_of
from ksearch_async.settings.run_config import RunConfig, files_gone
from ksearch_async.views.events import events_of
from ksearch_async.views.lines import (
    Narrator,
    confirmations_line,
    fates_line,
    faults_line,
    result_lines,
    state_line,
    usage_line,
)
from ksearch_async.views.progress import waiting_words
from ksearch_async.views.terminal import as_argument, note, put, put_json, shown_path, terminal_width
from ksearch_async.views.text import counted, duration
from messages.codec import Record
from messages.events import RunResumed, RunStarted
from messages.settings import SearchSettings

_LABEL_WIDTH = 11
_SILENCE_S = 60.0


class View(Protocol):
    """Shows one session of a run."""

    def tell(self, record: Record) -> None:
        """Show a record that was journalled."""

    def note(self, text: str) -> None:
        """Show a line that is not a result: a notice, a warning."""

    async def show(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Keep the screen up to date until cancelled; views that only write lines have nothing to do."""

    def finish(self, *, goes_on: bool = False) -> None:
        """Show how the run ended, or that it continues elsewhere."""


class PlainView:
    """Lines for people: wrapped to the terminal's width, or unwrapped if written elsewhere."""

    def __init__(
        self,
        chronicle: Run,
        folder: RunFolder,
        config: RunConfig,
        model_words: str,
        *,
        address: str = "",
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._address = address
        self._silence_s = silence_s
        self._said = 0
        """Number of lines so far."""
        self.chronicle = chronicle
        self.narrator = Narrator(chronicle, terminal_width)
        self._folder = folder
        self._config = config
        self._model_words = model_words

    def tell(self, record: Record) -> None:
        """Write a line for each noteworthy thing."""
        for line in (*self.narrator.tell(record), *self.opening_lines(record)):
            put(line)
            self._said += 1

    def note(self, text: str) -> None:
        """Write to stderr."""
        note(text)

    async def show(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Report what the run waits for when no line was written for a minute, then after two, four, and so on."""
        task_status.started()
        silent_s = 0.0
        while True:
            said, wait_s = self._said, max(self._silence_s, silent_s)
            await anyio.sleep(wait_s)
            silent_s = silent_s + wait_s if said == self._said else 0.0
            if silent_s and (words := waiting_words(self.chronicle.state)):
                note(f"no news for {duration(silent_s)}; waited for: {words}")
                for wait in waits():
                    note(f"an evaluation waits for {wait}")

    def opening_lines(self, record: Record) -> list[str]:
        """Return the lines for the beginning of a session; none for any other record."""
        if isinstance(record.body, RunStarted):
            return wrapped_lines(self.header(record.body))
        if isinstance(record.body, RunResumed):
            return wrapped_lines(self.resumption())
        return []

    def finish(self, *, goes_on: bool = False) -> None:
        """Print the summary."""
        put()
        for line in wrapped_lines(self.summary(goes_on=goes_on)):
            put(line)

    def header(self, started: RunStarted) -> Iterator[str]:
        """Describe the run that begins."""
        settings = started.settings
        drafts = f", {settings.samples} drafts of each attempt" if settings.samples > 1 else ""
        plan = (
            f"{counted(settings.branches, 'branch', 'branches')} at once, "
            f"{counted(settings.budget.max_rounds, 'round', 'rounds')}, "
            f"{_windows(settings)}{drafts}, seed {started.seed} (effort {self._config.effort})"
        )
        yield f"task       {started.task.name} ({started.description.language})"
        march = f", -march={started.target.march}" if started.target.march else f", {started.target.toolchain}"
        yield f"device     {started.target.device}{march}"
        yield f"model      {self._model_words}"
        yield f"search     {plan}"
        yield f"run        {shown_path(self._folder.path)}"
        if self._address:
            yield f"join it    ksearch evaluator --nats {self._address}"

    def resumption(self) -> Iterator[str]:
        """Describe the run that continues."""
        yield f"resumed    {self._folder.run_id} after {self.chronicle.state.rounds} rounds"
        yield f"model      {self._model_words}"

    def summary(self, *, goes_on: bool = False) -> Iterator[str]:
        """Describe how the run ended, or its current state."""
        chronicle = self.chronicle
        state = chronicle.state
        ended = state_line(chronicle, in_use=goes_on, with_failure=False)  # that is the error's line, the last one
        yield f"run        {self._folder.run_id}: {ended}"
        yield f"rounds     {state.rounds} of {state.settings.budget.max_rounds}, {duration(chronicle.elapsed_s)}"
        yield f"attempts   {fates_line(chronicle)}"
        if confirmed := confirmations_line(chronicle):
            yield f"confirmed  {confirmed}"
        yield f"model      {usage_line(chronicle)}; {self._model_words}"
        if chronicle.faults:
            yield f"endpoint   failed tries: {faults_line(chronicle)}"
        best = chronicle.best(shown_path(self._folder.best))
        yield from result_lines(chronicle, shown_path(self._folder.best), shown_path(self._folder.candidates))
        if best is not None:
            yield f"check it   ksearch eval {self._checked(best.path)}"
        elif (untimed := chronicle.untimed()) and not files_gone(self._config):
            latest = as_argument(self._folder.candidates / untimed[-1])
            yield f"compile it ksearch eval {self._task()} {latest} --compile-for sm_90"
        elif chronicle.fates["unusable"] and not state.rounds:
            yield f"hint       no answer held a program; {self._advice()}"
        if goes_on:
            yield f"watch it   ksearch watch {as_argument(self._folder.path)}"
        elif chronicle.finished is None or chronicle.finished.stopped_by in ("interrupted", "infrastructure"):
            yield f"go on      ksearch resume {as_argument(self._folder.path)}"

    def _checked(self, best: str) -> str:
        """Return the argument for `ksearch eval` that checks the best: the run, if its task's files are gone."""
        if files_gone(self._config):
            return as_argument(self._folder.path)
        scorer = self._config.program.evaluator
        scoring = "" if scorer is None else f" --score-with {as_argument(Path(scorer))}"
        return f"{self._task()}{scoring} {quote(best)}"

    def _task(self) -> str:
        return self._config.task if is_bundled(self._config.task) else as_argument(Path(self._config.task))

    def _advice(self) -> str:
        model = self._config.model
        if dialect_of(model, os.environ) == "offline":
            return "the built-in rules know few tasks: name a model (--model)"
        nodes = self.chronicle.state.nodes.values()
        node_id = next(node.node_id for node in nodes if "unusable" in dict(node.fates))
        shown = f"ksearch show {as_argument(self._folder.path)} {node_id} --answer"
        return f"{shown} prints what {model.name} answered; another model may do better (ksearch run --model)"


def _windows(settings: SearchSettings) -> str:
    """Return the numbers of attempts without improvement after which a branch ends, as text."""
    window, repair = settings.stagnation_window, settings.repair_window
    return f"window {window} ({repair} until correct)" if repair not in (None, window) else f"window {window}"


def wrapped_lines(lines: Iterable[str]) -> list[str]:
    """Wrap labelled lines to the terminal's width, except paths and commands, which a line break would spoil."""
    columns = terminal_width()
    if columns is None:
        return list(lines)
    fit = partial(wrap, width=max(columns, 2 * _LABEL_WIDTH), subsequent_indent=" " * _LABEL_WIDTH)
    return [part for line in lines for part in ([line] if _is_copied(line) else fit(line, break_on_hyphens=False))]


def _is_copied(line: str) -> bool:
    words = line[_LABEL_WIDTH:].split()
    return len(words) == 1 or words[:1] == ["ksearch"]


class JsonView:
    """One JSON object per line."""

    def __init__(self, chronicle: Run, folder: RunFolder) -> None:
        self._chronicle = chronicle
        self._folder = folder

    def tell(self, record: Record) -> None:
        """Print the event, or each fact of the decision."""
        self._chronicle.fold(record)
        for event in events_of(record):
            put_json(event)

    def note(self, text: str) -> None:
        """Write to stderr."""
        note(text)

    async def show(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Do nothing: every line was written when its record came."""
        task_status.started()

    def finish(self, *, goes_on: bool = False) -> None:
        """Print the last line."""
        chronicle = self._chronicle
        finished = chronicle.finished
        put_json(
            {
                "kind": "run.finished",
                "run": self._folder.run_id,
                "rounds": chronicle.state.rounds,
                "best": chronicle.best(str(self._folder.best)),
                "untimed": chronicle.untimed(),
                "stopped_by": finished.stopped_by if finished else None if goes_on else "interrupted",
            }
        )
