"""The mailbox of a local run: orders as files in its folder. The answers are in the journal.

`<run>/orders/` exists while a process works on the run, and only its owner may use it (0700; each order 0600). An order
is put there whole, by renaming, under a name of its own. The process takes it out, once, and publishes it on the run's
stream under the message id `<run>.asked-<name>`. The sender reads the outcome in the journal. Files are used instead of
a socket because the same protection that keeps a candidate from writing the journal then keeps it from giving orders.

For a run without a working process, the sender appends orders to the journal itself, under the journal's lock.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.to_thread
import msgspec
import structlog

from actors.bus.base import MAX_EVENT_BYTES, Bus
from actors.bus.journal import JournalStore
from actors.bus.memory import MemoryBus
from ksearch_async.errors import refusal
from ksearch_async.runs.feed import JournalReader
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.run import Order
from messages.base import BusError
from messages.codec import encode, to_json
from messages.facts import Decided, Fact

LOOK_S = 0.1
"""Poll interval of a process for orders, and of a sender for the outcome."""
STALE_S = 60.0
"""Seconds. An order older than this when a session begins was given to an earlier session, and its sender no longer
waits."""
_SUFFIX = ".order"
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600

_decoder: msgspec.json.Decoder[Order] = msgspec.json.Decoder(Order)
log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_mailbox(folder: RunFolder, bus: Bus, run_id: str) -> AsyncIterator[None]:
    """Accept orders to a run that this process works on, while the context is open."""
    box = folder.orders
    await anyio.to_thread.run_sync(_prepare, box)
    try:
        async with anyio.create_task_group() as beside:
            beside.start_soon(_take_in, box, bus, run_id)
            yield
            beside.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(shutil.rmtree, box, True)


async def _take_in(box: Path, bus: Bus, run_id: str) -> None:
    while True:
        for name, order in await anyio.to_thread.run_sync(take_orders, box):
            log.info("order taken in", run=run_id, order=name)
            await bus.publish(run_id, encode(order), msg_id=_msg_id(run_id, name))
        await anyio.sleep(LOOK_S)


def _prepare(box: Path) -> None:
    box.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    box.chmod(_PRIVATE_FOLDER)
    for path in box.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - path.lstat().st_mtime > STALE_S:
                path.unlink()


def take_orders(box: Path) -> list[tuple[str, Order]]:
    """Take out all orders, the oldest first. Files that are not orders are deleted."""
    try:
        found = [(path.lstat().st_mtime_ns, path) for path in box.iterdir() if path.suffix == _SUFFIX]
    except FileNotFoundError:  # its folder was deleted, or an order was taken back between two looks
        return []
    taken: list[tuple[str, Order]] = []
    for _, path in sorted(found):
        with suppress(FileNotFoundError):
            order = _read_order(path)
            path.unlink()
            taken += [(path.stem, order)] if order is not None else []
    return taken


def _read_order(path: Path) -> Order | None:
    """Read an order of our own user; None if it is something else.

    Raises:
        FileNotFoundError: it was taken back.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            if _is_own(os.fstat(fd)):
                return _decoder.decode(file.read())
        reason = "it is no file of this user's, or too large"
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # msgspec's are ValueErrors; nested too deeply
        reason = str(error)
    log.warning("order thrown away", order=str(path), error=reason)
    return None


def _is_own(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size <= MAX_EVENT_BYTES


async def order_local(folder: RunFolder, run_id: str, order: Order, *, patience_s: float) -> tuple[Fact, ...] | None:
    """Give an order to a local run, and return what was decided on it.

    None: it is recorded, and no process works on the run. The next session decides on it.

    Raises:
        ConfigError: this user may not write to the run's folder.
        messages.base.BusError: the run's process has not decided within `patience_s`; or the journal cannot be written.
    """
    name = uuid4().hex
    with anyio.move_on_after(patience_s):
        while True:
            if not await anyio.to_thread.run_sync(folder.in_use):
                if await _append(folder, run_id, order, name):
                    return None
            elif (answer := await _hand_over(folder, run_id, order, name)) is not None:
                return answer
            await anyio.sleep(LOOK_S)
    raise BusError(f"the process that works on run {run_id!r} has not decided on it within {patience_s:g} s")


async def _hand_over(folder: RunFolder, run_id: str, order: Order, name: str) -> tuple[Fact, ...] | None:
    """Put an order into the mailbox and wait for the decision; None: no process has the mailbox open."""
    reader = JournalReader(folder.journal)
    while not (await anyio.to_thread.run_sync(reader.read)).is_current:
        pass
    path = folder.orders / f"{name}{_SUFFIX}"
    if not await anyio.to_thread.run_sync(_put, path, order):
        return None
    try:
        return await _answer(folder, reader, _msg_id(run_id, name))
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(path.unlink, missing_ok=True))


async def _answer(folder: RunFolder, reader: JournalReader, msg_id: str) -> tuple[Fact, ...] | None:
    asked_at = 0
    while True:
        has_left = not await anyio.to_thread.run_sync(folder.in_use)
        for record in (await anyio.to_thread.run_sync(reader.read)).records:
            if record.msg_id == msg_id:
                asked_at = record.seq
            elif isinstance(record.body, Decided) and record.body.cause == asked_at:
                return record.body.facts
        if has_left:
            return None
        await anyio.sleep(LOOK_S)


def _put(path: Path, order: Order) -> bool:
    """Put a whole order into the mailbox; False if there is no mailbox."""
    fresh = path.with_suffix(".new")
    try:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE_FILE)
        with os.fdopen(fd, "wb") as file:
            file.write(to_json(order))
        fresh.replace(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refusal(
            f"cannot give an order to the run in {str(path.parent.parent)!r}: {error.strerror}",
            "only the user who started a run may steer it",
        ) from error
    return True


async def _append(folder: RunFolder, run_id: str, order: Order, name: str) -> bool:
    """Append an order to the journal of a run without a working process; False if a process has begun to work on it.

    Appending it twice has no effect: its message id is known then.
    """
    bus = MemoryBus(lambda _run_id: JournalStore(folder.journal, sync="always"))
    try:
        await bus.open_stream(run_id)
        await bus.publish(run_id, encode(order), msg_id=_msg_id(run_id, name))
    except BusError:
        if await anyio.to_thread.run_sync(folder.in_use):
            return False
        raise
    finally:
        bus.close()
    return True


def _msg_id(run_id: str, name: str) -> str:
    return f"{run_id}.asked-{name}"
