"""The contract of trackers, for MLflow: the real package, with files instead of a server."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests.contracts.trackers import SECRET, Seen, TrackerContract

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("mlflow") is None, reason="the extra mlflow is not installed"),
]


class TestMlflow(TrackerContract):
    name = "mlflow"

    @classmethod
    def environment(cls, place: Path) -> dict[str, str]:
        store = (place / "mlruns").as_uri()
        return {"MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_TRACKING_TOKEN": SECRET}

    @classmethod
    def read(cls, place: Path) -> Seen:
        (run,) = (path.parent for path in (place / "mlruns").glob("*/*/meta.yaml"))
        meta = yaml.safe_load((run / "meta.yaml").read_text())
        tags = texts_below(run / "tags")
        assert (tags["group"], tags["first"]) == ("seeds", "true")
        files = texts_below(run / "artifacts")
        artifacts: dict[str, dict[str, str]] = {}
        tables = {}
        for path, text in files.items():
            kind, name, *rest = path.split("/")
            if kind == "tables":
                table = json.loads(text)
                tables[name.removesuffix(".json")] = (tuple(table["columns"]), table["data"])
            else:
                artifacts.setdefault(name, {})["/".join(rest)] = text
        return Seen(
            figures={key: figures_of(text) for key, text in texts_below(run / "metrics").items()},
            parameters=dict(texts_below(run / "params")),
            artifacts=artifacts,
            tables=tables,
            runs={tags["ksearch.run_id"]},
            has_failed=meta["status"] != 3,
        )


def texts_below(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def figures_of(text: str) -> list[tuple[int, float | None]]:
    lines = (line.split() for line in text.splitlines())
    return [(int(step), float(value)) for _, value, step in lines]
