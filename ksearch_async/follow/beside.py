"""Serves trackers and notices beside a search and never delays it; trackers have processes of their own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from subprocess import DEVNULL, PIPE

import anyio
import msgspec
import structlog
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from ksearch_async.follow.choices import URL_VARIABLE, tracker_names
from ksearch_async.follow.logs import keep_secret
from ksearch_async.follow.tracking.base import Word
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.resume import Lead, Session, StopSwitch
from ksearch_async.settings.run_config import API_KEY_VARIABLES, ROLE_KEY_VARIABLES, RunConfig
from messages.codec import Record


def accompanied(session: Session, lead: Lead, *, say: Callable[[str], None]) -> Lead:
    """Return a `Lead` that also tracks the run and sends notices, as configured.

    A session that only watches a run leaves that to the leader.
    """

    async def led(*, tell: Callable[[Record], None], stop: StopSwitch | None = None) -> None:
        config, after = session.config, session.chronicle.last_seq
        async with AsyncExitStack() as beside:
            await beside.enter_async_context(tracked(session.folder, config, os.environ, say))
            if config.notify.url or os.environ.get(URL_VARIABLE):
                from ksearch_async.follow.notices import noticed  # noqa: PLC0415 - brings an HTTP client

                notices = noticed(session.folder, config.notify, os.environ, after=after)
                await beside.enter_async_context(notices)
            await lead(tell=tell, stop=stop)

    return led if session.leads else lead


_LONGEST_WORD = 1 << 20
_HURRY_S = 3.0
"""Seconds that a session waits if it has to end now."""
_QUIET_S = 2.0
"""Seconds after which the wait at the end is explained."""
SECRET_VARIABLES = ("WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")

log = structlog.get_logger(__name__)


@asynccontextmanager
async def tracked(
    folder: RunFolder, config: RunConfig, environment: Mapping[str, str], say: Callable[[str], None]
) -> AsyncIterator[None]:
    """Report a run to its trackers while this is entered. Failures of a tracker are reported and change nothing."""
    names = tracker_names(config.tracking.to or "")
    if not names:
        yield
        return
    keep_secret(*(environment.get(name) for name in SECRET_VARIABLES))
    beside = [_Beside(name, folder, config, say) for name in names]
    async with anyio.create_task_group() as readers:
        for each in beside:
            await each.start(environment)
            readers.start_soon(each.listen)
        patience_s = config.tracking.patience_s
        try:
            yield
        except anyio.get_cancelled_exc_class():
            patience_s = min(patience_s, _HURRY_S)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as partings:
                    for each in beside:
                        partings.start_soon(each.part, patience_s)


class _Beside:
    def __init__(self, name: str, folder: RunFolder, config: RunConfig, say: Callable[[str], None]) -> None:
        self._name = name
        self._folder = folder
        self._config = config
        self._say = say
        self._process: Process | None = None
        self._troubles = 0
        self._has_ended = False
        self._over = anyio.Event()

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start it in a session of its own, so that neither Ctrl-C nor a closed terminal reaches it."""
        settings = msgspec.json.encode(self._config.tracking).decode()
        command = [
            sys.executable,
            "-P",
            "-m",
            "ksearch_async.follow.tracking",
            self._name,
            str(self._folder.path),
            settings,
        ]
        try:
            self._process = await anyio.open_process(
                command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                env=_without_our_keys(environment, self._config),
                start_new_session=True,
            )
        except OSError as error:
            log.warning("the run is not tracked", tracker=self._name, error=str(error))

    async def listen(self) -> None:
        """Pass on its messages until it ends."""
        if self._process is None or self._process.stdout is None:
            self._over.set()
            return
        lines = BufferedByteReceiveStream(self._process.stdout)
        with (
            anyio.CancelScope(shield=True),  # it ends with the process, which is parted from in bounded time
            suppress(anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound, msgspec.MsgspecError),
        ):
            while True:
                self._heard(msgspec.json.decode(await lines.receive_until(b"\n", _LONGEST_WORD), type=Word))
        self._over.set()

    def _heard(self, word: Word) -> None:
        match word.kind:
            case "begun":
                self._say(f"tracked by {self._name}{f': {word.text}' if word.text else ''}")
            case "trouble":
                self._troubles += 1
                if self._troubles == 1:
                    log.warning("a tracker fails; the run goes on", tracker=self._name, error=word.text)
                else:
                    log.info("a tracker fails again", tracker=self._name, error=word.text)
            case "failed":
                self._has_ended = True
                log.warning("the run goes on untracked", tracker=self._name, error=word.text)
            case "ended":
                self._has_ended = True
                told = log.warning if word.dropped else log.info
                text = "a tracker missed something" if word.dropped else "a tracker has received all"
                told(text, tracker=self._name, taken=word.taken, dropped=word.dropped)

    async def part(self, patience_s: float) -> None:
        """Let it report the rest within this time, then end it."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            await process.stdin.aclose()
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._explain, patience_s)
            with anyio.move_on_after(patience_s):
                await self._over.wait()
            waiting.cancel_scope.cancel()
        await _end(process)
        if not self._has_ended:
            why = f"it was not done within {patience_s:g} s" if process.returncode == -signal.SIGKILL else "it ended"
            hint = f"see {self._folder.path / 'tracking' / f'{self._name}.log'}"
            log.warning("a tracker was not told all", tracker=self._name, why=why, hint=hint)

    async def _explain(self, patience_s: float) -> None:
        await anyio.sleep(_QUIET_S)
        self._say(f"{self._name} receives the rest, for {patience_s:g} s at most ...")


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await process.aclose()


def _without_our_keys(environment: Mapping[str, str], config: RunConfig) -> dict[str, str]:
    """Return an environment without our settings and the models' keys, which a tracker does not need."""
    model = config.model
    keys = {*API_KEY_VARIABLES, *ROLE_KEY_VARIABLES.values(), model.key_variable}
    keys |= {each.key_variable for each in (model.planner, model.coder, *model.coder.members)}
    return {name: value for name, value in environment.items() if name not in keys and not name.startswith("KSEARCH_")}
