"""Opens sessions, wherever the run's messages go: in this process, or over NATS."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio.to_thread

from ksearch_async.config import RunConfig, load_config
from ksearch_async.drafting import check_accepted
from ksearch_async.launch import lead_session, open_run, reopen_run
from ksearch_async.refusals import refusal
from ksearch_async.runs import RunFolder
from ksearch_async.session import Opened, Start, check_messages_stay


@asynccontextmanager
async def open_session(
    config: RunConfig, *, run_id: str | None = None, start: Start | None = None
) -> AsyncIterator[Opened]:
    """Check all that a run needs, make its folder, and have what it needs until it is over.

    What did not begin leaves nothing behind.

    Args:
        config: what to search on, and how.
        run_id: what the run and its folder are called; null: by task and time.
        start: told what the start is busy with.

    Raises:
        ConfigError: task, model settings, toolchain, folder or server cannot be used.
        messages.errors.BusError: the server cannot be reached.
        messages.errors.EvaluatorError: the judge failed on the reference.
    """
    await anyio.to_thread.run_sync(check_accepted, config.task)
    if config.nats is None:
        check_local(config)
        async with open_run(config, run_id=run_id) as (session, tools):
            yield session, partial(lead_session, session, tools)
        return
    from ksearch_async.distributed import open_distributed  # noqa: PLC0415 - a local run needs no client of NATS

    async with open_distributed(config, run_id=run_id, start=start or Start()) as opened:
        yield opened


def check_local(config: RunConfig) -> None:
    """Accept a configuration of a run of one process.

    Raises:
        ConfigError: it asks for what needs a server.
    """
    if config.workers.here not in (None, "all"):
        raise refusal("--with is for runs over NATS: a run of one process has all its workers", "give --nats, too")
    if config.arch is not None:
        raise refusal("--arch is for runs over NATS: this run is for this machine", "give --nats, too")
    if config.metrics.port is not None:
        raise refusal("--metrics-port is for runs over NATS", "give --nats, too")


@asynccontextmanager
async def reopen_session(folder: RunFolder, config: RunConfig, *, start: Start | None = None) -> AsyncIterator[Opened]:
    """Check that a run can go on with this configuration, and have what it needs until it is over.

    Raises:
        ConfigError: it would not be the same run, or its server has it no longer.
        messages.errors.BusError: the journal cannot be read, or the server cannot be reached.
    """
    check_messages_stay(load_config(folder.config), config, folder.run_id)
    if config.nats is None:
        async with reopen_run(folder, config) as (session, tools):
            yield session, partial(lead_session, session, tools)
        return
    from ksearch_async.distributed import reopen_distributed  # noqa: PLC0415

    async with reopen_distributed(folder, config, start=start or Start()) as opened:
        yield opened
