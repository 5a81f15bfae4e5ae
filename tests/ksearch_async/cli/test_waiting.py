"""How `run` and `resume` choose what they show, and what they say while a start takes its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from ksearch_async.cli.waiting import explained
from tests.ksearch_async.test_cli import ksearch


@asynccontextmanager
async def opened_after(seconds: float) -> AsyncIterator[str]:
    await anyio.sleep(seconds)
    yield "opened"


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_a_start_that_takes_long_says_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(opened_after(25)) as opened:
        assert opened == "opened"
        assert capsys.readouterr().err.splitlines() == [
            "checking the reference ...",
            "still checking the reference: 12 s; Ctrl-C gives up",
            "still checking the reference: 22 s; Ctrl-C gives up",
        ]
        await anyio.sleep(60)
    assert capsys.readouterr().err == ""


@pytest.mark.anyio
@pytest.mark.virtual_time
async def test_a_quick_start_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with explained(opened_after(1)):
        pass
    assert capsys.readouterr().err == ""


def test_a_live_view_is_refused_where_there_is_no_terminal(tmp_path: Path) -> None:
    done = ksearch("run", "rmsnorm_silu", "--view", "live", cwd=tmp_path)
    assert done.returncode == 2
    assert "needs a terminal" in done.stderr
    assert not any(tmp_path.iterdir())


def test_a_view_and_json_cannot_be_given_together(tmp_path: Path) -> None:
    done = ksearch("run", "rmsnorm_silu", "--view", "plain", "--json", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be given together" in done.stderr
