"""The right to time on a device: one holder at a time, on the whole host.

A lease is a lock (flock) on a file in `/dev/shm`. The kernel gives it to one process at a time, releases it when that
process dies, and names the holder (/proc/locks). The contents of the file count only if the holder has written them.

Not covered: containers with a /dev/shm of their own (Docker's default; `--ipc=host` shares the host's). A user of the
host can take the lease and keep it; others then fail after a while, with the holder's name.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

import anyio
import msgspec

from messages.base import EvaluatorError

FOLDER = Path("/dev/shm")  # noqa: S108 - one place for all users is the point
_RETRY_S = 0.01
_LOOK_S = 1.0
_PATIENCE_S = 900.0
"""Seconds to wait for the same holder: longer than a judge's longest call including loading."""
_SOON_S = 5.0
"""Shorter waits are not reported."""
_RECORD_BYTES = 4096
_COMMAND_CHARACTERS = 120


Lease: TypeAlias = AbstractAsyncContextManager[object]
"""The exclusive right to time on a device; within one process `anyio.Lock` works, too."""


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    run_id: str = ""
    since: datetime


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lease."""

    pid: int
    """Process id as seen here; 0: not visible, for example in another container."""
    user: str
    command: str
    run_id: str = ""
    since: datetime | None = None

    def __str__(self) -> str:
        """Describe the holder: who, since when, and what to do."""
        if not self.pid:
            return "a process that cannot be seen from here, in another container perhaps: end it there, or wait"
        run = f", run {self.run_id}" if self.run_id else ""
        since = f" since {self.since.astimezone():%Y-%m-%d %H:%M:%S}" if self.since else ""
        named = f"process {self.pid} of user {self.user} ({self.command}{run}){since}"
        return f"{named}: wait for it, or end it (kill {self.pid})"


_waiting: dict[HostLease, tuple[float, Holder | None]] = {}
"""Leases that this process waits for: since when, by the event loop's clock, and the holder."""


def waits() -> tuple[str, ...]:
    """Return descriptions of the waits of this process that have lasted some seconds."""
    now = anyio.current_time()
    late = [(lease, holder) for lease, (since, holder) in _waiting.items() if now - since > _SOON_S]
    return tuple(f"the timing lease of {lease.device}, held by {holder or 'no process now'}" for lease, holder in late)


class HostLease:
    """A lease shared by all processes of this host."""

    def __init__(self, device: str = "cpu", *, folder: Path = FOLDER, patience_s: float = _PATIENCE_S) -> None:
        self.device = device
        self._path = folder / f"ksearch-lease-{device}"
        self._patience_s = patience_s
        self._turn = anyio.Lock()
        self._held: int | None = None

    async def __aenter__(self) -> None:
        await self._take("")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    @asynccontextmanager
    async def hold(self, run_id: str) -> AsyncIterator[None]:
        """Hold it for a run; waiting processes see the run's name."""
        await self._take(run_id)
        try:
            yield
        finally:
            self._give_back()

    def holder(self) -> Holder | None:
        """Return its holder; None: it is free."""
        try:
            status = self._path.stat()
            text = self._path.read_bytes()[:_RECORD_BYTES]
            locks = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        device = status.st_dev
        place = f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"
        pids = [int(line.split()[-4]) for line in locks.splitlines() if "FLOCK" in line and place in line.split()]
        if not pids:
            return None
        record = None
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            record = msgspec.json.decode(text, type=_Record)
        return _holder(pids[0], record if record is not None and record.pid == pids[0] else None)

    async def _take(self, run_id: str) -> None:
        await self._turn.acquire()
        try:
            self._held = self._try(run_id) or await self._wait(run_id)
        except BaseException:
            self._turn.release()
            raise

    async def _wait(self, run_id: str) -> int:
        began = since = looked_at = anyio.current_time()
        holder = self.holder()
        _waiting[self] = began, holder
        try:
            while (held := self._try(run_id)) is None:
                await anyio.sleep(_RETRY_S)
                if anyio.current_time() - looked_at < min(_LOOK_S, self._patience_s):
                    continue
                looked_at, now = anyio.current_time(), self.holder()
                if now is None or now != holder:
                    since, holder = looked_at, now
                    _waiting[self] = began, holder
                elif looked_at - since > self._patience_s:
                    waited = f"for more than {self._patience_s:g} s"
                    raise EvaluatorError(f"the timing lease of {self.device} is held {waited} by {now}")
        finally:
            del _waiting[self]
        return held

    def _give_back(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None
        self._turn.release()

    def _try(self, run_id: str) -> int | None:
        try:
            file = self._open()
        except OSError as error:
            raise EvaluatorError(
                f"cannot take the timing lease of {self.device}: {error}; remove {self._path}, or have its owner do so"
            ) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_current(file):
                os.close(file)
                return None
            record = _Record(pid=os.getpid(), run_id=run_id, since=datetime.now(UTC))
            with suppress(OSError):  # another user's file: then the holder is known, and the time since when is not
                os.ftruncate(file, 0)
                os.pwrite(file, msgspec.json.encode(record), 0)
        except BlockingIOError:
            os.close(file)
            return None
        return file

    def _open(self) -> int:
        """Open the plain file, never through a link; a new file is accessible to all users."""
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            # Not created if it exists: where the system protects such folders, other users' files could not be opened.
            file = os.open(self._path, os.O_RDWR | flags)
        except PermissionError:
            file = os.open(self._path, os.O_RDONLY | flags)  # enough for a lock
        except FileNotFoundError:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | flags, 0o666)
            with suppress(PermissionError):  # somebody else was quicker
                os.fchmod(file, 0o666)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise FileExistsError(f"{self._path} is no plain file")
        return file

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self._path, follow_symlinks=False))  # noqa: PTH116
        except FileNotFoundError:
            return False


def _holder(pid: int, record: _Record | None) -> Holder:
    user = command = "?"
    with suppress(OSError):
        owner = Path(f"/proc/{pid}").stat().st_uid
        user = str(owner)
        with suppress(KeyError):
            user = pwd.getpwuid(owner).pw_name
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        named = " ".join(Path(word).name if place < 2 else word for place, word in enumerate(words)).strip()
        command = "".join(letter for letter in named if letter.isprintable())[:_COMMAND_CHARACTERS]
    return Holder(
        pid=max(pid, 0),
        user=user,
        command=command,
        run_id=record.run_id if record else "",
        since=record.since if record else None,
    )
