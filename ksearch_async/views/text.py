"""Text for people: numbers, durations, columns, tables and charts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec
from rich.cells import cell_len

from evaluators.process.printed import printable
from messages.verdicts import ProfiledKernel, TimedWorkload, WorkloadProfile

_LONGEST = 4096
"""Most characters of a text made into one line, so that a title of a megabyte is not scanned for each frame."""
_VARIATIONS = re.compile("[\ufe00-\ufe0f]")
"""Variation selectors: terminals disagree on the width that they give to the character before them."""


def plain(text: str) -> str:
    """Return a text on one line, without anything that a terminal acts upon or of doubtful width.

    Of a very long text only the beginning. Measure texts after this.
    """
    line = text if len(text) <= _LONGEST else text[:_LONGEST]
    if line.isascii() and line.isprintable() and "  " not in line:
        return line.strip()
    return " ".join(printable(_VARIATIONS.sub("", line)).split())


def columns_of(text: str) -> int:
    """Return the number of terminal columns of a text: two for East Asian characters, none for combining accents."""
    return len(text) if text.isascii() else cell_len(printable(text))


def fitted(line: str, columns: int | None) -> str:
    """Return the line, cut at the end to the number of columns; leading blanks stay."""
    return line if columns is None or columns_of(line) <= columns else _cut(line, columns)


def shortened(text: str, width: int) -> str:
    """Return the text on one line, at most `width` columns wide."""
    line = plain(text)
    return line if columns_of(line) <= width else _cut(line, width)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return the text padded to `width` columns, with blanks behind it or before it."""
    blanks = " " * max(0, width - columns_of(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, columns: int, *, lead: str = "", most: int | None = None) -> list[str]:
    """Return the text wrapped to lines of at most this number of columns, between words or within long ones.

    Args:
        text: line breaks and runs of blanks count as one blank each.
        columns: columns of each line.
        lead: stands before the first line; the others are indented to its end.
        most: most lines; a longer text ends in `…`. Null: no limit.
    """
    indent = " " * columns_of(lead)
    lines, line, is_bare = [], lead, True
    words = (text if most is None else text[: 4 * columns * (most + 1)]).split()
    for piece in (piece for word in words for piece in _pieces(printable(word), max(1, columns - len(indent)))):
        joined = f"{line}{piece}" if is_bare else f"{line} {piece}"
        if columns_of(joined) > columns and not is_bare:
            lines.append(line)
            joined = indent + piece
        line, is_bare = joined, False
    lines.append(line)
    if most is None or len(lines) <= most:
        return lines
    return [*lines[: most - 1], fitted(f"{lines[most - 1]} {lines[most].strip()}", columns)]


def _pieces(word: str, columns: int) -> Iterator[str]:
    while columns_of(word) > columns:
        head = _head(word, columns) or word[0]
        yield head
        word = word[len(head) :]
    yield word


def _head(line: str, columns: int) -> str:
    if line.isascii():
        return line[:columns]
    signs = 0
    for sign in printable(line):
        columns -= cell_len(sign)
        if columns < 0:
            break
        signs += 1
    return line[:signs]


def _cut(line: str, columns: int) -> str:
    return f"{_head(line, max(0, columns - 1)).rstrip()}…"


def counted(count: int, one: str, many: str) -> str:
    """Return a number with its word: `1 branch`, `4 branches`."""
    return f"{count:,} {one if count == 1 else many}"


def dollars(amount: float) -> str:
    """Return US dollars as text: in cents, smaller amounts to the hundredth of a cent."""
    return f"${amount:,.4f}" if 0 < amount < 0.01 else f"${amount:,.2f}"


def rough_duration(seconds: float) -> str:
    """Return seconds in one unit: `48 s`, `3 min`, `5 h`, `12 d`."""
    for unit, length, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800)):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def tokens_words(count: int) -> str:
    """Return a number of tokens with about three digits: `940 tokens`, `136k tokens`, `4.21M tokens`."""
    if count < 10_000:
        return f"{count:,} tokens"
    return f"{count / 1000:.0f}k tokens" if count < 1_000_000 else f"{count / 1e6:.2f}M tokens"


def duration(seconds: float) -> str:
    """Return seconds as text: `48.2 s`, `3 min 12 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min"


_GAP = "  "
_NARROWEST = 8


class Column(msgspec.Struct, frozen=True):
    """A column of a table."""

    title: str
    number: bool = False
    """True if it is aligned to the right."""
    rank: int = 0
    """Rank: columns of a higher rank are left out first if the width does not suffice; those of rank 0 stay."""
    least: int | None = None
    """Characters to which it is cut before other columns are left out; None: it is not cut."""


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None = None) -> Iterator[str]:
    """Yield a line of titles, then one per row."""
    grid = [[column.title.upper() for column in columns], *([plain(cell) for cell in row] for row in rows)]
    widths = [max(columns_of(row[at]) for row in grid) for at in range(len(columns))]
    least = [min(wide, columns[at].least or wide) for at, wide in enumerate(widths)]
    shown = list(range(len(columns)))
    while width is not None and _total(least, shown) > width and any(columns[at].rank for at in shown):
        shown.remove(max(shown, key=lambda at: columns[at].rank))
    if width is not None and (excess := _total(widths, shown) - width) > 0:
        widest = max(shown, key=lambda at: widths[at])
        widths[widest] = max(_NARROWEST, widths[widest] - excess)
    for row in grid:
        cells = [padded(shortened(row[at], widths[at]), widths[at], right=columns[at].number) for at in shown]
        yield _GAP.join(cells).rstrip()


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1)


_LEVELS = "▁▂▃▄▅▆▇█"
_MARK = "┄"


def sparkline(values: Sequence[float], width: int) -> str:
    """Draw values, at most `width` of them (the last of each group), in eighths of the largest; 0 is blank."""
    return chart_rows(values, min(width, len(values)), 1)[0]


def chart_rows(values: Sequence[float], width: int, height: int, *, mark: float | None = None) -> list[str]:
    """Draw values as columns from 0 up, stretched or thinned out (the last of each group) to the width; 0 is blank.

    Args:
        values: numbers, none below 0.
        width: columns of each line.
        height: lines.
        mark: a value to mark where nothing is drawn.

    Returns:
        The lines, the uppermost first.
    """
    top = max(values, default=0.0)
    levels = [_level(value, top, height) for value in _resampled(values, width)]
    marked = None if mark is None or not 0 < mark < top else int(mark / top * height)
    return [_row(levels, above, _MARK if above == marked else " ") for above in reversed(range(height))]


def _resampled(values: Sequence[float], width: int) -> list[float]:
    count = len(values)
    return [values[max(0, -(-(index + 1) * count // width) - 1)] for index in range(width)] if count else []


def _level(value: float, top: float, height: int) -> int:
    return max(1, round(value / top * 8 * height)) if value > 0 else 0


def _row(levels: Sequence[int], above: int, blank: str) -> str:
    filled = (min(8, max(0, level - 8 * above)) for level in levels)
    return "".join(_LEVELS[eighths - 1] if eighths else blank for eighths in filled)


_WIDEST = 40
WORKLOAD_TITLES: tuple[str, ...] = ("workload", "speedup", "95 % interval", "latency us", "reference us", "pairs")


def workload_table(workloads: Sequence[TimedWorkload]) -> Iterator[str]:
    """Yield a line of titles and one per workload, in the task's order; nothing for a single workload."""
    if not workloads:
        return
    rows = [WORKLOAD_TITLES, *((one.name[:_WIDEST], *workload_cells(one)[1:]) for one in workloads)]
    if any(one.speedup_vs_baseline is not None for one in workloads):
        extra = ["vs baseline", *(_times(one.speedup_vs_baseline) for one in workloads)]
        rows = [(*row, more) for row, more in zip(rows, extra, strict=True)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for name, *numbers in rows:
        cells = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *cells])


def workload_span(workloads: Sequence[TimedWorkload]) -> str:
    """Return the range of the workloads' speedups in a few words; empty for a single workload."""
    if not workloads:
        return ""
    slowest = min(workloads, key=lambda one: one.speedup_vs_reference)
    fastest = max(workloads, key=lambda one: one.speedup_vs_reference)
    return (
        f"{len(workloads)} workloads: {_times(slowest.speedup_vs_reference)} ({slowest.name[:_WIDEST]}) "
        f"to {_times(fastest.speedup_vs_reference)}"
    )


def workload_cells(one: TimedWorkload) -> tuple[str, ...]:
    """Return the cells under `WORKLOAD_TITLES`."""
    interval = one.speedup_interval
    return (
        one.name,
        _times(one.speedup_vs_reference),
        f"[{interval.low:.2f}, {interval.high:.2f}]",
        f"{one.latency_us:.1f}",
        f"{one.reference_latency_us:.1f}",
        str(one.pairs),
    )


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"


TITLES = (
    *("share", "us", "launches", "blocks", "threads", "registers", "shared", "local", "occupancy", "waves", "of"),
    "kernel",
)
_SMALL = 0.005
"""Share of time below which kernels are only counted."""
_NAME_CHARACTERS = 100


def headline(profile: WorkloadProfile) -> str:
    """Describe in a sentence the time of a call, and the share of the candidate's own kernels."""
    where = f"{profile.workload}: " if profile.workload else ""
    whose = "all of it" if profile.own_share > 1 - _SMALL else f"{profile.own_share:.0%} of it"
    return (
        f"{where}{profile.span_us:.1f} us from the first kernel to the last, the GPU idle for "
        f"{profile.idle_share:.0%}; {whose} in the candidate's own kernels"
    )


def kernel_rows(profile: WorkloadProfile) -> list[tuple[str, ...]]:
    """Return a row of cells under `TITLES` for each kernel that matters, the longest first."""
    total_us = profile.kernels_us
    return [_cells(kernel, total_us) for kernel in profile.kernels if kernel.time_us >= _SMALL * total_us]


def left_out(profile: WorkloadProfile) -> str:
    """Return the number of kernels without a row as text; empty if none."""
    shown = kernel_rows(profile)
    count = profile.left_out + len(profile.kernels) - len(shown)
    rest_us = profile.kernels_us - sum(kernel.time_us for kernel in profile.kernels[: len(shown)])
    share = max(rest_us, 0.0) / profile.kernels_us if profile.kernels_us else 0.0
    return f"and {count} more, {share:.1%} of it together" if count else ""


def _cells(kernel: ProfiledKernel, total_us: float) -> tuple[str, ...]:
    share = f"{kernel.time_us / total_us:.0%}" if total_us else ""
    always = (share, f"{kernel.time_us:.1f}", str(kernel.launches))
    name = kernel.name[:_NAME_CHARACTERS]
    if not any(kernel.block):
        return (*always, "", "", "", "", "", "", "", "driver", name)
    return (
        *always,
        _product(kernel.grid),
        _product(kernel.block),
        str(kernel.registers),
        str(kernel.shared_bytes),
        str(kernel.local_bytes),
        f"{kernel.occupancy:.0%}",
        f"{kernel.waves:.1f}",
        "its own" if kernel.is_own else "library",
        name,
    )


def _product(sizes: tuple[int, int, int]) -> str:
    told = [*sizes]
    while len(told) > 1 and told[-1] == 1:
        told.pop()
    return "x".join(map(str, told))
