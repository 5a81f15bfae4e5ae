"""Weights & Biases. Online or offline by its own variables (`WANDB_MODE`, `WANDB_API_KEY`, `WANDB_ENTITY`, …).

A resumed session has the same id, so W&B shows one run. Not sent: the machine's load, which is read by polling the GPUs
that candidates are timed on; source code, the git state and the console of this process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import wandb
from wandb.errors import Error

from ksearch_async.follow.tracking.base import Artifact, Entry, Figures, Table, as_tracker_errors
from ksearch_async.runs.run import Head, Totals
from ksearch_async.settings.run_config import TrackingSettings

_PROJECT = "ksearch"
_SIGN_IN_S = 30.0


class Tracked:
    """A run of Weights & Biases. A `Tracker`."""

    def __init__(self, settings: TrackingSettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._run: Any = None
        """Untyped: the package's own type has 5,000 lines, which type checks would read at every change of ours."""

    def begin(self, head: Head, parameters: Mapping[str, object]) -> str:
        """See `Tracker.begin`."""
        settings = self._settings
        os.environ.setdefault("WANDB_DATA_DIR", str(self._folder))  # else in the home folder
        with as_tracker_errors(Error):
            self._run = wandb.init(
                project=settings.project or os.environ.get("WANDB_PROJECT") or _PROJECT,
                id=head.run_id,
                name=head.run_id,
                group=settings.group,
                tags=list(settings.tags) or None,
                config=dict(parameters),
                dir=os.environ.get("WANDB_DIR") or self._folder,
                resume="allow",
                settings=wandb.Settings(
                    console="off",
                    disable_code=True,
                    disable_git=True,
                    init_timeout=_SIGN_IN_S,
                    silent=True,
                    x_disable_machine_info=True,
                    x_disable_stats=True,
                ),
            )
        return self._run.url or ""

    def take(self, entry: Entry) -> None:
        """See `Tracker.take`."""
        with as_tracker_errors(Error):
            if isinstance(entry, Figures):
                self._run.log(dict(entry.values), step=entry.round)
            else:
                self._run.log_artifact(_artifact(entry))

    def end(self, totals: Totals, tables: Sequence[Table]) -> None:
        """See `Tracker.end`."""
        with as_tracker_errors(Error):
            shown = {
                f"tables/{table.name}": wandb.Table(columns=list(table.columns), data=[list(row) for row in table.rows])
                for table in tables
            }
            self._run.log(shown, step=totals.rounds)
            self._run.summary.update({"stopped_by": totals.stopped_by, "rounds": totals.rounds})
            self._run.finish(exit_code=1 if totals.stopped_by == "infrastructure" else 0)


def _artifact(entry: Artifact) -> Any:
    artifact = wandb.Artifact(entry.name, type=entry.kind, metadata={"round": entry.round})
    for path, text in entry.files.items():
        with artifact.new_file(path, mode="w", encoding="utf-8") as file:
            file.write(text)
    return artifact
