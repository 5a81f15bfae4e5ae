"""Trackers that are missing, broken, slow or mad: the session hears of it once, and ends in bounded time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from ksearch_async.follow.beside import tracked
from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import RunConfig, TrackingSettings, save_config
from tests.ksearch_async.stories import on_disk, story

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(200)]

PACKAGE = """
class Settings:
    def __init__(self, **_given):
        pass

class Artifact:
    def __init__(self, *_words, **_given):
        raise OSError("no room for artifacts")

class Table:
    def __init__(self, **_given):
        pass

class Run:
    url = "https://tracker.example/run"
    summary = {}
    def log(self, _values, step):
        pass
    def log_artifact(self, _artifact):
        pass
    def finish(self, exit_code):
        pass

def init(**_given):
    return Run()
"""
"""What stands in for a tracker's package: takes figures, and fails on artifacts."""
BROKEN = {
    "missing": ("raise ImportError(\"No module named 'wandb'\")", "pip install 'ksearch-async[wandb]' brings it"),
    "lets nobody in": ("", "no key"),
    "ends its process": (PACKAGE.replace("return Run()", "import os; os._exit(7)"), "it ended"),
    "hangs": (PACKAGE.replace("return Run()", "import time; time.sleep(1000)"), "it was not done within 2 s"),
}


def package(folder: Path, text: str) -> dict[str, str]:
    """Write a stand-in for the package, and return an environment in which it is the one that is found."""
    (folder / "wandb").mkdir()
    (folder / "wandb" / "__init__.py").write_text(text)
    (folder / "wandb" / "errors.py").write_text("class Error(Exception):\n    pass\n")
    return {**os.environ, "PYTHONPATH": str(folder), "WANDB_API_KEY": "0123456789abcdef"}


async def told_of(
    folder: RunFolder, config: RunConfig, environment: dict[str, str]
) -> tuple[list[EventDict], list[str]]:
    """Have a run tracked from begin to end; return what stands in the log, and what people are told."""
    said: list[str] = []
    with capture_logs() as logs:
        async with tracked(folder, config, environment, said.append):
            pass
    return list(logs), said


def run_in(folder: Path, *, patience_s: float = 60.0) -> tuple[RunFolder, RunConfig]:
    config = RunConfig(task="relu", tracking=TrackingSettings(to="wandb", patience_s=patience_s))
    run = on_disk(folder, story())
    save_config(config, run.config)
    return run, config


@pytest.mark.parametrize("case", BROKEN)
async def test_a_tracker_that_cannot_be_had_is_said_once_and_holds_nothing_up(case: str, tmp_path: Path) -> None:
    text, words = BROKEN[case]
    text = text or PACKAGE.replace("return Run()", "raise ValueError('no key')")
    run, config = run_in(tmp_path, patience_s=2.0 if case == "hangs" else 60.0)
    begun, before = time.monotonic(), set(psutil.Process().children(recursive=True))
    logs, _ = await told_of(run, config, package(tmp_path, text))
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert words in " ".join(str(warning) for warning in warnings)
    assert len([line for line in warnings if words in str(line)]) == 1
    assert time.monotonic() - begun < 60
    assert not set(psutil.Process().children(recursive=True)) - before


async def test_what_is_dropped_is_counted_and_the_rest_is_told(tmp_path: Path) -> None:
    run, config = run_in(tmp_path)
    logs, said = await told_of(run, config, package(tmp_path, PACKAGE))
    assert said[0] == "tracked by wandb: https://tracker.example/run"
    warnings = [line for line in logs if line["log_level"] == "warning"]
    assert [line["event"] for line in warnings] == ["a tracker fails; the run goes on", "a tracker missed something"]
    assert warnings[0]["error"] == "no room for artifacts"
    assert (warnings[1]["taken"], warnings[1]["dropped"]) == (2, 2)


async def test_a_tracker_gets_none_of_our_keys(tmp_path: Path) -> None:
    told = f"import os\nopen({str(tmp_path / 'seen')!r}, 'w').write(' '.join(os.environ))\n"
    run, config = run_in(tmp_path)
    model = msgspec.structs.replace(config.model, key_variable="MINE")
    keys = {
        "OPENAI_API_KEY": "k",
        "KSEARCH_API_KEY": "k",
        "LLM_API_KEY": "k",
        "MINE": "k",
        "KSEARCH_NOTIFY_SECRET": "k",
    }
    config = msgspec.structs.replace(config, model=model)
    await told_of(run, config, {**package(tmp_path, told + PACKAGE), **keys})
    seen = (tmp_path / "seen").read_text().split()
    assert "WANDB_API_KEY" in seen
    assert not set(keys) & set(seen)
