"""The Python interface as third parties use it: one call, errors that can be caught, nothing left behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

import ksearch_async
from ksearch_async.follow.logs import pass_to_logging
from ksearch_async.settings.options import SETTINGS
from messages.codec import encode_line
from tests.evaluators.patience import too_busy
from tests.ksearch_async.stories import RUN_ID, story
from tests.ksearch_async.stories import SETTINGS as SETTINGS_OF_STORY

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python-api.md"


@pytest.fixture(autouse=True)
def structlog_as_it_comes() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def on_disk(folder: Path, stopped_by: Any = "rounds") -> Path:
    """Write the journal of a run: what else a folder holds is derived from it."""
    run = folder / RUN_ID
    run.mkdir()
    (run / "journal.jsonl").write_bytes(b"".join(map(encode_line, story(stopped_by))))
    return run


def test_a_result_has_the_best_kernel_with_its_source_and_what_the_run_took(tmp_path: Path) -> None:
    result = ksearch_async.load_result(on_disk(tmp_path))
    assert (result.run_id, result.task, result.rounds, result.stopped_by) == (RUN_ID, "relu", 2, "rounds")
    assert (result.fates, result.found) == ({"wrong": 1, "measured": 1}, True)
    assert result.best is not None
    assert (result.best.speedup_vs_reference, result.best.speedup_interval) == (2.0, (1.9, 2.1))
    assert (result.best.source, result.best.language, result.best.found_by) == (
        "// fast\n",
        "cpp",
        ("fuse the passes",),
    )
    assert result.usage.calls == 2


def test_a_run_that_was_killed_has_no_reason_for_its_end(tmp_path: Path) -> None:
    assert ksearch_async.load_result(on_disk(tmp_path, None)).stopped_by is None


def test_every_setting_of_the_command_line_is_a_keyword() -> None:
    keywords = set(ksearch_async.RunSettings.__annotations__)
    assert keywords == {setting.keyword for setting in SETTINGS}


@pytest.mark.anyio
async def test_what_cannot_be_used_is_a_config_error_and_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ksearch_async.ConfigError, match="did you mean 'rmsnorm_silu'"):
        await ksearch_async.search("rmsnorm_sillu", runs_dir=str(tmp_path))
    with pytest.raises(ksearch_async.ConfigError, match=r"^branches: expected int >= 1"):
        await ksearch_async.search("rmsnorm_silu", runs_dir=str(tmp_path), branches=0)
    with pytest.raises(ksearch_async.ConfigError, match="unknown setting 'brnches'") as caught:
        await ksearch_async.search("rmsnorm_silu", runs_dir=str(tmp_path), brnches=2)  # type: ignore[call-arg]
    assert caught.value.__notes__ == ["did you mean 'branches'?"]
    with pytest.raises(ksearch_async.ConfigError, match="no run 'none'"):
        await ksearch_async.resume("none", runs_dir=tmp_path)
    assert not any(tmp_path.iterdir())  # noqa: ASYNC240 - a look at a folder of its own


@pytest.mark.anyio
async def test_run_says_what_to_write_where_an_event_loop_runs() -> None:
    with pytest.raises(ksearch_async.ConfigError, match="running event loop") as caught:
        ksearch_async.run("rmsnorm_silu")
    assert "await ksearch_async.search" in caught.value.__notes__[0]


@pytest.mark.anyio
async def test_a_run_that_is_over_is_returned_as_it_is(tmp_path: Path) -> None:
    folder = on_disk(tmp_path)
    config = ksearch_async.RunConfig(task="relu.py", search=SETTINGS_OF_STORY)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    result = await ksearch_async.resume(folder)
    assert (result.stopped_by, result.rounds) == ("rounds", 2)
    assert structlog.is_configured()  # by then our lines go to logging, see below


def test_our_log_lines_go_to_logging_unless_structlog_was_configured(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    pass_to_logging()
    structlog.get_logger("actors.test").warning("actor crashed", actor="recorder")
    assert [(record.name, record.message) for record in caplog.records] == [("actors.test", "actor crashed")]
    assert capsys.readouterr().out == ""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), processors=[lambda *_: "theirs"])
    pass_to_logging()
    assert structlog.get_logger().warning("x") == "theirs"


SEARCH = """
import asyncio, json, logging, signal, sys
import ksearch_async

handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
events = []

async def main():
    searching = asyncio.ensure_future(
        ksearch_async.search("gate.py", max_rounds=3, branches=2, on_event=events.append)
    )
    while not any(event["kind"] == "attempt.finished" for event in events):
        await asyncio.sleep(0.05)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    searching.cancel()
    try:
        await searching
    except asyncio.CancelledError:
        pass
    import psutil
    left = psutil.Process().children(recursive=True)
    cut_off = ksearch_async.load_result("latest")
    result = await ksearch_async.resume(cut_off.path)
    return left, cut_off, result

# asyncio's own runner installs a handler of its own
loop = asyncio.new_event_loop()
left, cut_off, result = loop.run_until_complete(main())
assert not logging.getLogger().handlers
told = {
    "left": len(left), "cut_off": cut_off.stopped_by, "rounds": result.rounds, "stopped_by": result.stopped_by,
    "fates": result.fates, "files": len(result.best.files) if result.best else 0,
    "kinds": sorted({event["kind"] for event in events}),
}
sys.stderr.write(json.dumps(told))
"""


@pytest.mark.long
def test_a_cancelled_search_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    from tests.ksearch_async.test_whole_run import PROBLEM  # noqa: PLC0415 - a constant of a neighbour

    (tmp_path / "gate.py").write_text(PROBLEM)
    done = subprocess.run(
        [sys.executable, "-c", SEARCH], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    told = json.loads(done.stderr)
    assert (told["left"], told["cut_off"]) == (0, None)
    assert (told["rounds"], told["stopped_by"]) == (3, "rounds")
    assert told["fates"].keys() & {"measured", "unstable", "outpaced"}
    assert {"run.started", "attempt.finished", "evaluation.finished"} <= set(told["kinds"])
    if not told["files"]:
        too_busy("no candidate's time was confirmed")


@pytest.mark.long
@pytest.mark.parametrize("number", range(3))
def test_the_guides_examples_run(number: int, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    example = _with_its_time_up_at_once(blocks[number]) if number == 1 else blocks[number]
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    said = ("rounds 2", "time is up\nNone ", "interrupted\nrounds 3")[number]
    assert said in done.stdout


def _with_its_time_up_at_once(example: str) -> str:
    """Return the example with its time up at the search's first event, however long this host takes to get there."""
    timed, watching = "asyncio.timeout(20):", "def watch(event):\n"
    assert (example.count(timed), example.count(watching)) == (1, 1)
    return example.replace(timed, "asyncio.timeout(100) as time:").replace(
        watching, f"{watching}        time.reschedule(0)\n"
    )
