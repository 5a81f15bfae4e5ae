"""What a search will ask for, said before it starts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ksearch_async.runs.estimate import earlier_run, forecast
from ksearch_async.settings.run_config import RunConfig, save_config
from messages.events import RunStarted
from messages.settings import Budget, SearchSettings, WorldModel
from tests.ksearch_async.stories import TARGET, TASK, on_disk, story


def started(settings: SearchSettings) -> RunStarted:
    opening = story()[0].body
    assert isinstance(opening, RunStarted)
    return msgspec.structs.replace(opening, settings=settings)


@pytest.mark.parametrize(("mode", "calls"), [("evolving", (1, 5)), ("frozen", (1, 3)), ("off", (0, 0))])
def test_the_planner_is_asked_as_often_as_the_world_model_says(mode: WorldModel, calls: tuple[int, int]) -> None:
    told = forecast(started(SearchSettings(world_model=mode, stagnation_window=5, budget=Budget(max_rounds=20))))
    assert told.planner_calls == calls
    assert (told.planner_prompt_tokens is None) == (mode == "off")
    assert told.coder_prompt_tokens > 100


def test_a_limit_of_calls_limits_the_forecast() -> None:
    assert forecast(started(SearchSettings(budget=Budget(max_rounds=20, max_calls=7)))).coder_calls == 7


def test_the_latest_readable_run_of_the_same_task_on_the_same_machine_counts(tmp_path: Path) -> None:
    assert earlier_run(tmp_path, TASK, TARGET) is None
    damaged, good = on_disk(tmp_path, story(), "relu-damaged"), on_disk(tmp_path, story(), "relu-good")
    for folder in (damaged, good):
        save_config(RunConfig(task="relu"), folder.config)
    damaged.journal.write_bytes(b"{}\n{}\n")
    found = earlier_run(tmp_path, TASK, TARGET)
    assert found is not None
    assert (found.run, found.rounds, found.elapsed_s, found.round_s) == ("relu-good", 2, 13.0, 6.5)
    assert earlier_run(tmp_path, TASK, msgspec.structs.replace(TARGET, march="x86-64-v4")) is None
