"""How a search in progress is shown: lines for people, or one JSON object per line for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from ksearch_async.chronicle import Chronicle
from ksearch_async.cli.output import put, put_json
from ksearch_async.config import RunConfig
from ksearch_async.narrate import Narrator, best_lines, duration, fates_line, state_line
from ksearch_async.runs import RunFolder
from messages.codec import Record
from messages.events import CandidateWritten, RunResumed, RunStarted
from messages.facts import Decided, RunFinished

LONG_TEXTS = frozenset({"prompt", "answer", "description", "candidate", "task", "log", "type"})
"""Fields that `--json` leaves out of events: the journal has them."""


class View(Protocol):
    """Shows one session of a run."""

    def tell(self, record: Record) -> None:
        """Take a record, as it is journalled."""

    def finish(self) -> None:
        """Say how it ended."""


class PlainView:
    """Lines for people."""

    def __init__(self, chronicle: Chronicle, folder: RunFolder, config: RunConfig, model_words: str) -> None:
        self._chronicle = chronicle
        self._narrator = Narrator(chronicle)
        self._folder = folder
        self._config = config
        self._model_words = model_words

    def tell(self, record: Record) -> None:
        """Say in a line each thing that is worth one."""
        for line in self._narrator.tell(record):
            put(line)
        if isinstance(record.body, RunStarted):
            put("\n".join(self._header(record.body)))
        elif isinstance(record.body, RunResumed):
            put(f"resumed    {self._folder.run_id} after {self._chronicle.state.rounds} rounds")
            put(f"model      {self._model_words}")

    def finish(self) -> None:
        """Print the summary."""
        chronicle = self._chronicle
        state = chronicle.state
        put()
        put(f"run        {self._folder.run_id}: {state_line(chronicle, in_use=False)}")
        put(f"rounds     {state.rounds} of {state.settings.budget.max_rounds}, {duration(chronicle.elapsed_s)}")
        put(f"fates      {fates_line(chronicle)}")
        put(f"model      {state.usage.calls} calls, {state.usage.tokens} tokens; {self._model_words}")
        best = chronicle.best(str(self._folder.best))
        put("\n".join(best_lines(best)))
        if best is not None:
            put(f"check it   ksearch eval {self._config.task} {best.path}")
        elif chronicle.fates["unusable"] and not state.rounds:
            put("hint       no answer held a program; the built-in rules know few tasks: name a model (--model)")
        if chronicle.finished is None or chronicle.finished.stopped_by in ("interrupted", "infrastructure"):
            put(f"go on      ksearch resume {self._folder.path}")

    def _header(self, started: RunStarted) -> Iterator[str]:
        settings = started.settings
        plan = f"{settings.branches} branches at once, {settings.budget.max_rounds} rounds, seed {started.seed}"
        yield f"task       {started.task.name} ({started.description.language})"
        yield f"device     {started.target.device}, -march={started.target.march}"
        yield f"model      {self._model_words}"
        yield f"search     {plan}"
        yield f"run        {self._folder.path}"


class JsonView:
    """One JSON object per line."""

    def __init__(self, chronicle: Chronicle, folder: RunFolder) -> None:
        self._chronicle = chronicle
        self._folder = folder

    def tell(self, record: Record) -> None:
        """Print the event, or each fact of the decision."""
        self._chronicle.fold(record)
        for event in json_events(record):
            put_json(event)

    def finish(self) -> None:
        """Print the last line."""
        chronicle = self._chronicle
        finished = chronicle.finished
        put_json(
            {
                "kind": "run.finished",
                "run": self._folder.run_id,
                "rounds": chronicle.state.rounds,
                "best": chronicle.best(str(self._folder.best)),
                "stopped_by": finished.stopped_by if finished else "interrupted",
            }
        )


def json_events(record: Record) -> Iterator[dict[str, Any]]:
    """Yield what `--json` prints for a record; the end of a run has a line of its own."""
    messages = record.body.facts if isinstance(record.body, Decided) else (record.body,)
    for message in messages:
        if isinstance(message, RunFinished):
            continue
        tag = str(message.__struct_config__.tag)
        fields = msgspec.to_builtins(message)
        shown = {key: value for key, value in fields.items() if key not in LONG_TEXTS}
        if isinstance(message, CandidateWritten) and message.candidate is not None:
            shown["candidate_id"] = message.candidate.candidate_id
        yield {"kind": tag.rsplit(".v", 1)[0], "seq": record.seq, "at": record.at, **shown}
