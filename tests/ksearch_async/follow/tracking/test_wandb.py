"""The contract of trackers, for Weights & Biases: the real package, offline."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ksearch_async.settings.run_config import flatten
from tests.contracts.trackers import SECRET, Seen, TrackerContract
from tests.ksearch_async.follow.tracking.offline import records_in
from tests.ksearch_async.stories import RUN_ID

pytest.importorskip("wandb.proto", reason="the extra wandb is not installed")
pytestmark = pytest.mark.timeout(300)


class TestWandb(TrackerContract):
    name = "wandb"

    @classmethod
    def environment(cls, place: Path) -> dict[str, str]:
        return {"WANDB_MODE": "offline", "WANDB_API_KEY": SECRET, "WANDB_CACHE_DIR": str(place / "cache")}

    @classmethod
    def read(cls, place: Path) -> Seen:
        kept: dict[str, Any] = {"figures": defaultdict(list), "parameters": {}, "artifacts": {}, "tables": {}}
        runs, codes = set(), []
        for path in sorted((place / "runs" / RUN_ID / "tracking" / "wandb").glob("offline-run-*/*.wandb")):
            for record in records_in(path):
                if record.HasField("run"):
                    runs.add(record.run.run_id)
                    config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
                    kept["parameters"] |= dict(flatten(config))
                    assert (record.run.project, record.run.run_group, list(record.run.tags)) == (
                        "kernels",
                        "seeds",
                        ["first"],
                    )
                elif record.HasField("exit"):
                    codes.append(record.exit.exit_code)
                elif record.HasField("history"):
                    take_history(record.history, kept["figures"])
                elif record.HasField("artifact"):
                    take_artifact(record.artifact, kept)
        return Seen(runs=runs, has_failed=any(codes), **kept)


def take_history(history: Any, figures: dict[str, list[tuple[int, float | None]]]) -> None:
    values = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in history.item}
    for key, value in values.items():
        if value is None or isinstance(value, int | float):
            figures[key].append((values["_step"], value))


def take_artifact(artifact: Any, kept: dict[str, Any]) -> None:
    files = {entry.path: Path(entry.local_path).read_text() for entry in artifact.manifest.contents}
    for path, text in files.items():
        if path.endswith(".table.json"):
            table = json.loads(text)
            name = path.removeprefix("tables/").removesuffix(".table.json")
            kept["tables"][name] = (tuple(table["columns"]), table["data"])
            return
    kept["artifacts"][artifact.name] = files
