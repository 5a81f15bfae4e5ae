"""Recorded runs as they answer again."""

from __future__ import annotations

from pathlib import Path

from actors.bus.journal import read_journal
from actors.llm.replay import Recording
from actors.planner.texts import whole_records
from ksearch_async.config import DEFAULT_RUNS_DIR
from ksearch_async.refusals import refusal
from ksearch_async.runs import find_run
from messages.errors import BusError
from messages.events import CandidateWritten, EditsProposed


def read_recording(name: str, runs_dir: Path) -> Recording:
    """Return the answers of a run: of a folder, or by its name beside other runs.

    Raises:
        ConfigError: there is no such run, or its journal cannot be read.
    """
    found = find_run(name, runs_dir if runs_dir != Path() else Path(DEFAULT_RUNS_DIR))
    try:
        records = list(whole_records(read_journal(found.journal)))
    except BusError as error:
        raise refusal(f"run {name!r} cannot answer: {error}") from error
    return Recording(record.body for record in records if isinstance(record.body, CandidateWritten | EditsProposed))
