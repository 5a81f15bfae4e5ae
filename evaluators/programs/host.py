"""The process that scores programs, as its evaluator holds it: a `zygote`, started, given jobs, ended.

- `await start_host(scorer: Scorer, environment) -> Host`, raises EvaluatorError
- `await host.score(candidate: Candidate, scorer: Scorer) -> Outcome`, raises EvaluatorError
- `await host.end()`
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from messages.base import EvaluatorError
from messages.tasks import Candidate, Scorer

_ZYGOTE = Path(__file__).with_name("zygote.py")
_OPEN_S = 300.0
"""For importing the evaluator file."""
_GRACE_S = 30.0
"""A warden that says nothing for so long after the candidate's limit is gone."""
_END_S = 10.0
_NOTICE_S = 0.5
_MAX_LINE_BYTES = 8 << 20


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Output of the candidate's process; see `evaluators.programs.scoring`."""

    score: float | None = None
    metrics: dict[str, float | str] = {}
    notes: dict[str, str] = {}
    no_score: str = ""
    syntax: str = ""
    error: str = ""
    out_of_memory: bool = False
    trace: str = ""
    unusable: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a candidate's process ended; see `evaluators.programs.warden`."""

    how: str
    """`ended` or `timed_out`."""
    exit_code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    max_rss_bytes: int
    report: Report | None
    """None if its process died before it could say anything, or said something else."""
    log: str


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    unusable: str = ""


_outcome = msgspec.json.Decoder(Outcome)
_ready = msgspec.json.Decoder(_Ready)


class Host:
    """A zygote as its evaluator holds it."""

    def __init__(self, process: Process, control: UNIXSocketStream, folder: Path) -> None:
        self._process = process
        self._control = control
        self._folder = folder
        self._numbers = count(1)
        self._sending = anyio.Lock()

    @property
    def is_alive(self) -> bool:
        """Say whether it can still be asked."""
        return self._process.returncode is None

    async def open(self, scorer: Scorer) -> None:
        """Wait until the evaluator file is imported.

        Raises:
            EvaluatorError: it cannot be, or this host is at fault.
        """
        try:
            with anyio.fail_after(_OPEN_S):
                line = await BufferedByteReceiveStream(self._control).receive_until(b"\n", _MAX_LINE_BYTES)
        except TimeoutError as error:
            text = f"evaluator file {scorer.path!r} was not imported within {_OPEN_S:g} s"
            raise EvaluatorError(text, permanent=True) from error
        except (anyio.IncompleteRead, anyio.BrokenResourceError) as error:
            text = f"evaluator file {scorer.path!r} ended its process while it was imported"
            raise EvaluatorError(text, permanent=True) from error
        if unusable := _ready.decode(line).unusable:
            raise EvaluatorError(f"evaluator file {scorer.path!r} cannot be used: {unusable}", permanent=True)

    async def score(self, candidate: Candidate, scorer: Scorer) -> Outcome:
        """Have one program scored. Cancelled: its process and all that descends from it are killed.

        Raises:
            EvaluatorError: the host died.
        """
        ours, theirs = socket.socketpair()
        async with await UNIXSocketStream.from_socket(ours) as connection:
            try:
                with theirs:
                    async with self._sending:
                        await self._control.send_fds(b"j", [theirs.fileno()])
                await connection.send(self._job(candidate, scorer))
                with anyio.fail_after(scorer.timeout_s + _GRACE_S):
                    line = await BufferedByteReceiveStream(connection).receive_until(b"\n", _MAX_LINE_BYTES)
                return _outcome.decode(line)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.IncompleteRead) as error:
                with anyio.move_on_after(_NOTICE_S):
                    await self._process.wait()  # so that the next try finds it dead, if it is
                raise EvaluatorError("the process that scores programs died") from error
            except TimeoutError as error:
                raise EvaluatorError("the process that scores programs says nothing more") from error
            except (msgspec.DecodeError, anyio.DelimiterNotFound) as error:
                raise EvaluatorError(f"the process that scores programs said something else: {error}") from error

    async def end(self) -> None:
        """End it and all that it started, and wait for that."""
        with anyio.CancelScope(shield=True):
            await self._control.aclose()
            with anyio.move_on_after(_END_S):
                await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)  # a handful of names, if anything is left

    def _job(self, candidate: Candidate, scorer: Scorer) -> bytes:
        job = {
            "folder": str(self._folder / str(next(self._numbers))),
            "files": [(file.path, file.text) for file in candidate.files],
            "timeout_s": scorer.timeout_s,
            "memory_bytes": scorer.memory_bytes,
        }
        return msgspec.json.encode(job) + b"\n"


async def start_host(scorer: Scorer, environment: dict[str, str]) -> Host:
    """Start a zygote and have it import the evaluator file.

    Must be called on the event loop's thread: until the file is imported, the zygote ends with the thread that started
    it.

    Raises:
        EvaluatorError: the evaluator file cannot be used, or this host is at fault.
    """
    folder = Path(tempfile.mkdtemp(prefix="ksearch-programs-"))
    ours, theirs = socket.socketpair()
    with theirs:
        arguments = {
            "control_fd": theirs.fileno(),
            "parent_pid": os.getpid(),
            "evaluator": scorer.path,
            "digest": scorer.digest,
            "folder": str(folder),
        }
        try:
            process = await anyio.open_process(
                [sys.executable, "-P", str(_ZYGOTE), msgspec.json.encode(arguments).decode()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=Path(scorer.path).parent,
                env=environment,
                pass_fds=(theirs.fileno(),),
            )
        except OSError as error:
            ours.close()
            raise EvaluatorError(f"cannot start a process: {error}") from error
    host = Host(process, await UNIXSocketStream.from_socket(ours), folder)
    try:
        await host.open(scorer)
    except BaseException:
        await host.end()
        raise
    return host
