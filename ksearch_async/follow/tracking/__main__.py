"""The process of one tracker: `python -m ksearch_async.follow.tracking NAME FOLDER SETTINGS`, started beside a session.

It reads the run's journal from the point where an earlier session's process stopped, until both its standard input and
the journal end. So it outlives a killed search just long enough to report the rest. On standard output it writes
messages for people, one `Word` a line; output of its packages goes to `tracking/NAME.log` in the run's folder.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ksearch_async.follow.tracking.base import Entry, Tracker, TrackerError, Word, mark_path, open_tracker, read_mark
from ksearch_async.follow.tracking.ledger import Ledger, parameters_of
from ksearch_async.runs.feed import JournalReader
from ksearch_async.runs.folder import RunFolder
from ksearch_async.settings.run_config import RunConfig, TrackingSettings, load_config
from messages.base import KsearchError
from messages.codec import Record

_LOOK_S = 0.5
"""Seconds between looks at a journal that does not grow."""
_NICE = 10
"""Niceness, since candidates may be timed on this host."""
_TRIES = 3
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0


class Control:
    """Detects the end of the session: the other end of a pipe is closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.is_over = False

    def wait(self, seconds: float) -> None:
        """Wait this long, or until the session is over."""
        if not self.is_over and select.select([self._fd], [], [], seconds)[0]:
            self.is_over = not os.read(self._fd, 64)


class Clerk:
    """Passes entries to one tracker, and counts successes and losses."""

    def __init__(self, tracker: Tracker, control: Control, say: Callable[[Word], None]) -> None:
        self._tracker = tracker
        self._control = control
        self._say = say
        self.taken = 0
        self.dropped = 0

    def begin(self, ledger: Ledger, config: RunConfig) -> str | None:
        """Begin, with as many tries as needed; None if the session ends before."""
        head = ledger.run.head
        if head is None:
            return None
        wait_s = _FIRST_WAIT_S
        while True:
            try:
                return self._tracker.begin(head, parameters_of(head, config))
            except TrackerError as error:
                self._trouble(str(error))
            if self._control.is_over:
                return None
            self._control.wait(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def take(self, entry: Entry) -> None:
        """Pass an entry on, or drop it after some tries."""
        if self._tried(lambda: self._tracker.take(entry)):
            self.taken += 1
        else:
            self.dropped += 1

    def end(self, ledger: Ledger) -> None:
        """End the session at the tracker."""
        if not self._tried(lambda: self._tracker.end(ledger.run.totals, ledger.tables())):
            self.dropped += 1

    def _tried(self, hand_over: Callable[[], None]) -> bool:
        for attempt in range(_TRIES):
            try:
                hand_over()
            except TrackerError as error:
                self._trouble(str(error))
                self._control.wait(_FIRST_WAIT_S * 2**attempt)
            else:
                return True
        return False

    def _trouble(self, text: str) -> None:
        self._say(Word(kind="trouble", text=text))


def follow(journal: Path, control: Control) -> Iterator[Record]:
    """Yield a run's records, new ones included, until the session and the journal end."""
    reader = JournalReader(journal)
    while True:
        was_over = control.is_over
        batch = reader.read() if journal.exists() else None
        if batch is not None:
            yield from batch.records
        if batch is None or batch.is_current:
            if was_over:
                return
            control.wait(_LOOK_S)


def track(
    name: str, folder: RunFolder, settings: TrackingSettings, control: Control, say: Callable[[Word], None]
) -> int:
    """Report a session to a tracker, and return the exit code."""
    mark, ledger, clerk = read_mark(folder, name), Ledger(), None
    tracker = open_tracker(name, settings, mark_path(folder, name).parent)
    for record in follow(folder.journal, control):
        entries = ledger.take(record)
        if clerk is None and ledger.run.started is not None:
            clerk = Clerk(tracker, control, say)
            url = clerk.begin(ledger, load_config(folder.config))
            if url is None:
                return 1
            mark.url = url or mark.url
            say(Word(kind="begun", text=mark.url))
        if clerk is not None and record.seq > mark.seq and entries:
            for entry in entries:
                clerk.take(entry)
            mark.keep(folder, name, record.seq)
    if clerk is not None:
        clerk.end(ledger)
        say(Word(kind="ended", taken=clerk.taken, dropped=clerk.dropped))
    return 0


def main(name: str, path: str, settings: str) -> int:
    """Run the process of one tracker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends when the session does, however that ends
    os.nice(_NICE)
    folder = RunFolder(Path(path))
    log = mark_path(folder, name).with_suffix(".log")
    log.parent.mkdir(parents=True, exist_ok=True)
    words, control = os.dup(1), Control(os.dup(0))
    with log.open("a", buffering=1) as output, Path(os.devnull).open() as nothing:
        for stream, fd in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(stream.fileno(), fd)

    def say(word: Word) -> None:
        try:
            os.write(words, msgspec.json.encode(word) + b"\n")
        except BrokenPipeError:
            print(time.strftime("%FT%TZ", time.gmtime()), word, file=sys.stderr)  # noqa: T201 - nobody else listens

    try:
        return track(name, folder, msgspec.json.decode(settings, type=TrackingSettings), control, say)
    except KsearchError as error:
        say(Word(kind="failed", text=str(error)))
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
