"""The live view: a frame below what was printed, redrawn in place a few times a second.

It reads nothing but the records that it is told. A frame is one write, from a thread: a terminal that is stopped
(Ctrl-S, a hanging connection) holds up the view and not the search. The cursor stays visible and the terminal's modes
as they are: however the process ends, there is nothing to restore.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TextIO

import anyio
import anyio.to_thread
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from rich.style import Style
from rich.text import Text

from ksearch_async.cli.frame import frame_lines
from ksearch_async.cli.output import legible, one_line
from ksearch_async.cli.views import PlainView
from ksearch_async.progress import Progress
from messages.codec import Record

_FRAME_S = 0.25
_LINES_ABOVE = 3
"""Rows that the frame leaves to the lines above it."""
_FEWEST_COLUMNS = 20
_FEWEST_ROWS = 4
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
"""SGR codes of the words that the frame's styles are made of."""
_NO_COLOURS = ("1", "2")
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know synchronised output show all that stands between these at once; others ignore them."""


def can_be_live(stream: TextIO) -> bool:
    """Say whether the stream is a terminal that a frame can be drawn on."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown") and _fits(_size(stream))


class LiveView:
    """A frame for people at a terminal; what is worth keeping scrolls above it."""

    def __init__(self, plain: PlainView, stream: TextIO, *, leads: bool = True, slots: int | None = None) -> None:
        """Make a view.

        Args:
            plain: says how the session begins and ends, in lines that stay.
            stream: the terminal.
            leads: whether the run is led by this process, and ends with it.
            slots: evaluations that are worked on at once; null: others may come to work on them.
        """
        self._plain = plain
        self._progress = Progress(plain.chronicle, plain.narrator, leads=leads, slots=slots)
        self._canvas = Canvas(stream)
        self._above: list[str] = []
        self._drawn_for: tuple[int, int, os.terminal_size] | None = None
        """Record, second and size that the last frame was drawn for: another one would be the same."""

    def tell(self, record: Record) -> None:
        """Fold a record; it is shown with the next frame."""
        self._above.extend(self._progress.tell(record))
        self._above.extend(self._plain.opening_lines(record))

    def note(self, text: str) -> None:
        """Show a line above the frame."""
        self._above.append(text)

    async def show(self, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED) -> None:
        """Draw a frame every `_FRAME_S` until cancelled, then take it away; lines above it stay."""
        task_status.started()
        try:
            while True:
                drawn = self.drawn()
                if drawn:
                    with anyio.CancelScope(shield=True):  # it holds lines that stay
                        await anyio.to_thread.run_sync(self._canvas.write, drawn)
                await anyio.sleep(_FRAME_S)
        except OSError:
            return  # the terminal is gone; the search goes on
        finally:
            self._canvas.close(self._taken())

    def finish(self, *, goes_on: bool = False) -> None:
        """Print the summary."""
        self._plain.finish(goes_on=goes_on)

    def drawn(self) -> str:
        """Return what puts the frame of now on the terminal; empty while it would be the last one again."""
        if self._plain.chronicle.started is None:
            return ""  # the first record is about to come
        size, now = self._canvas.size(), _now()
        drawn_for = (self._plain.chronicle.last_seq, int(now.timestamp()), size)
        if drawn_for == self._drawn_for and not self._above:
            return ""
        self._drawn_for = drawn_for
        rows = size.lines - 1
        rows -= min(_LINES_ABOVE, rows // 4)
        frame = frame_lines(self._progress, now=now, width=size.columns - 1, rows=max(1, rows))
        return self._canvas.draw(self._taken(), frame)

    def _taken(self) -> list[str]:
        above, self._above = self._above, []
        return above


class Canvas:
    """The place of a frame on a terminal: below all lines, its cursor at the end of the frame's last line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._in_colour = not os.environ.get("NO_COLOR")
        self._lengths: list[int] = []
        """Columns of each line on the screen."""
        self._shown = ""

    def size(self) -> os.terminal_size:
        """Return the terminal's size now."""
        return _size(self._stream)

    def draw(self, above: Sequence[str], frame: Sequence[Text]) -> str:
        """Return what puts the frame in place of the last one, with lines above it; nothing if nothing changed."""
        shown = self._rendered([_harmless(line) for line in frame])
        if shown == self._shown and not above:
            return ""
        start = self._start()
        if above:
            start += "\x1b[J" + "".join(f"{one_line(line)}\n" for line in above)
        self._shown, self._lengths = shown, [line.cell_len for line in frame]
        return f"{_BEGIN}{start}{shown}\x1b[J{_END}"

    def write(self, text: str) -> None:
        """Write to the terminal.

        Raises:
            OSError: it is gone.
        """
        self._stream.flush()
        unwritten = legible(text, self._stream).encode(self._stream.encoding, "replace")
        while unwritten:
            unwritten = unwritten[os.write(self._stream.fileno(), unwritten) :]

    def close(self, above: Sequence[str]) -> None:
        """Take the frame away and leave the lines; a terminal that is gone is left alone."""
        start = self._start()
        self._shown, self._lengths = "", []
        try:
            self.write(start + "\x1b[J" + "".join(f"{one_line(line)}\n" for line in above))
        except OSError:
            return

    def _rendered(self, frame: Sequence[Text]) -> str:
        """Return the lines with their colours; each clears what an older one has left on its right."""
        return "\x1b[K\n".join(_painted(line, in_colour=self._in_colour) for line in frame)

    def _start(self) -> str:
        """Return what moves the cursor to the frame's first column and row.

        A terminal that was made narrower since has broken its lines: each takes as many rows as it needs now.
        """
        columns = max(1, self.size().columns)
        up = sum(max(1, -(-length // columns)) for length in self._lengths) - 1
        return f"\r\x1b[{up}A" if up > 0 else "\r"


def _harmless(line: Text) -> Text:
    """Return a line of the frame without what a terminal would act upon: its colours are added later."""
    plain = line.plain
    if plain.isprintable():
        return line
    return Text(one_line(plain), style=line.style, spans=line.spans, end=line.end)


def _painted(line: Text, *, in_colour: bool) -> str:
    """Return a line as a terminal takes it: as Rich's console would, in a tenth of the time."""
    pieces, at = [], 0
    for span in line.spans:  # in order, none over another: that is how the frame's lines are put together
        pieces.append(_styled(line.plain[at : span.start], line.style, in_colour=in_colour))
        pieces.append(_styled(line.plain[max(at, span.start) : span.end], span.style, in_colour=in_colour))
        at = max(at, span.end)
    pieces.append(_styled(line.plain[at:], line.style, in_colour=in_colour))
    return "".join(pieces)


def _styled(text: str, style: str | Style, *, in_colour: bool) -> str:
    codes = [_CODES[word] for word in str(style).split()] if text else []
    codes = codes if in_colour else [code for code in codes if code in _NO_COLOURS]
    return f"\x1b[{';'.join(codes)}m{text}\x1b[m" if codes else text


def _now() -> datetime:
    return datetime.now(UTC)


def _size(stream: TextIO) -> os.terminal_size:
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        return os.terminal_size((80, 24))
    return size if size.columns and size.lines else os.terminal_size((80, 24))


def _fits(size: os.terminal_size) -> bool:
    return size.columns >= _FEWEST_COLUMNS and size.lines >= _FEWEST_ROWS
