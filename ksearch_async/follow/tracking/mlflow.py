"""MLflow: a tracking server, or whatever `MLFLOW_TRACKING_URI` names; credentials by its own variables.

MLflow gives its runs ids of its own; ours is the tag `ksearch.run_id`, by which a resumed session finds its run. A
round without a figure has no entry: MLflow knows no null.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from ksearch_async.follow.tracking.base import WORLD_MODEL, Artifact, Entry, Figures, Table, as_tracker_errors
from ksearch_async.runs.run import Head, Totals
from ksearch_async.settings.run_config import TrackingSettings, flatten

_EXPERIMENT = "ksearch"
_OURS = "ksearch.run_id"
_NOT_IN_KEYS = re.compile(r"[^\w\-. :/]")
_LONGEST_VALUE = 6000
"""Most characters of a parameter that MLflow keeps."""


class Tracked:
    """A run of MLflow. A `Tracker`."""

    def __init__(self, settings: TrackingSettings, folder: Path) -> None:  # noqa: ARG002 - MLflow needs no folder
        self._settings = settings
        self._client: Any = None
        self._run_id = ""

    def begin(self, head: Head, parameters: Mapping[str, object]) -> str:
        """See `Tracker.begin`."""
        with as_tracker_errors(MlflowException):
            client = self._client = MlflowClient()
            experiment_id = self._experiment()
            found = client.search_runs([experiment_id], f"tags.`{_OURS}` = '{head.run_id}'", max_results=1)
            run = found[0] if found else client.create_run(experiment_id, run_name=head.run_id)
            self._run_id = run.info.run_id
            client.update_run(self._run_id, status="RUNNING")
            tags = {_OURS: head.run_id, "group": self._settings.group, **dict.fromkeys(self._settings.tags, "true")}
            client.log_batch(
                self._run_id,
                params=[] if found else [Param(_key(path), _value(value)) for path, value in flatten(parameters)],
                tags=[RunTag(_key(name), value) for name, value in tags.items() if value],
            )
        address = client.tracking_uri.rstrip("/")
        is_page = address.startswith(("http://", "https://")) and "@" not in address
        return f"{address}/#/experiments/{experiment_id}/runs/{self._run_id}" if is_page else ""

    def take(self, entry: Entry) -> None:
        """See `Tracker.take`."""
        with as_tracker_errors(MlflowException):
            if isinstance(entry, Figures):
                self._figures(entry)
            else:
                for path, text in entry.files.items():
                    self._client.log_text(self._run_id, text, f"{_place(entry)}/{path}")

    def end(self, totals: Totals, tables: Sequence[Table]) -> None:
        """See `Tracker.end`."""
        status = {"infrastructure": "FAILED", "interrupted": "KILLED", "": "KILLED"}.get(totals.stopped_by, "FINISHED")
        with as_tracker_errors(MlflowException):
            for table in tables:
                text = msgspec.json.encode({"columns": table.columns, "data": table.rows}).decode()
                self._client.log_text(self._run_id, text, f"tables/{table.name}.json")
            self._client.set_tag(self._run_id, "stopped_by", totals.stopped_by)
            self._client.set_terminated(self._run_id, status)

    def _experiment(self) -> str:
        name = self._settings.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or _EXPERIMENT
        experiment = self._client.get_experiment_by_name(name)
        return str(experiment.experiment_id if experiment else self._client.create_experiment(name))

    def _figures(self, entry: Figures) -> None:
        at_ms = int(time.time() * 1000)
        metrics = [
            Metric(_key(name), float(value), at_ms, entry.round)
            for name, value in entry.values.items()
            if isinstance(value, float | int)
        ]
        self._client.log_batch(self._run_id, metrics=metrics)


def _place(entry: Artifact) -> str:
    version = f"/round-{entry.round}" if entry.kind == WORLD_MODEL else ""
    return f"{entry.kind}/{entry.name}{version}"


def _key(name: str) -> str:
    return _NOT_IN_KEYS.sub("_", name)


def _value(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:_LONGEST_VALUE]
