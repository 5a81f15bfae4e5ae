"""Titles, answers, kernels and build logs that want to act on a terminal, as every command shows them on one."""

from __future__ import annotations

import os
import pty
import struct
import termios
import threading
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import TextIO

import msgspec
import pytest

from ksearch_async.cli import main
from ksearch_async.config import RunConfig, save_config
from ksearch_async.phrases import columns_of
from messages.codec import Body
from messages.events import CandidateBuilt, CandidateWritten, RunStarted
from messages.tasks import Candidate, SourceFile
from messages.verdicts import DidNotBuild, Measured, Verdict, Wrong
from tests.ksearch_async.stories import FAST, RUN_ID, TARGET, attempt, decided, inserted, on_disk, records_of, story

COLUMNS = 80
EVIL = "\x1b[H\x1b[2J\x1b]0;owned\x07\x1b[30m\x1b[40mhidden\x1b[0m\u202eright to left\u202c \x00\x9b2J 列列\r\nmore"
TITLES = (EVIL, "行列の積を融合する " * 20, "e\u0301" * 60, "\u2764\ufe0f", "x" * 1_000_000, "line\nbreak\ttab")


def hostile_run(folder: Path) -> None:
    bodies = [record.body for record in story(None)[:3]]
    opening = bodies[0]
    assert isinstance(opening, RunStarted)
    bodies[0] = msgspec.structs.replace(opening, task=msgspec.structs.replace(opening.task, name=EVIL))
    bodies.append(decided(*(inserted(f"n{at}", "n0" if at % 2 else "n1", title) for at, title in enumerate(TITLES, 2))))
    for number, verdict in ((3, FAST), (6, Wrong(reason=EVIL + "w" * 5000)), (9, DidNotBuild(reason=EVIL, log=EVIL))):
        bodies += _attempt(number, verdict)
    run = on_disk(folder, records_of(bodies))
    save_config(RunConfig(task="relu"), run.config)


def _attempt(number: int, verdict: Verdict) -> list[Body]:
    text = f"{EVIL}\n// {number}\n" + ("y" * 1_000_000 if isinstance(verdict, Measured) else "")
    candidate = Candidate(language="cpp", entry_point="f", files=(SourceFile(path="ker\x1b[2Jnel.cpp", text=text),))
    bodies = attempt(number, candidate, verdict)
    written = bodies[1]
    assert isinstance(written, CandidateWritten)
    evil = {"prompt": EVIL, "answer": EVIL, "notes": (EVIL,), "model": EVIL}
    bodies[1] = msgspec.structs.replace(written, **evil)
    failed = DidNotBuild(reason=EVIL, log=EVIL * 30)
    return [*bodies, CandidateBuilt(job_id="x", candidate_id=candidate.candidate_id, outcome=failed, target=TARGET)]


class Terminal:
    """A pseudo-terminal of 80 columns: what is written to it is collected."""

    def __init__(self, stream: TextIO, reader: int) -> None:
        self.stream = stream
        self._read = bytearray()
        ioctl(reader, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self._thread = threading.Thread(target=self._collect, args=(reader,))
        self._thread.start()

    def _collect(self, reader: int) -> None:
        try:
            while data := os.read(reader, 1 << 16):
                self._read += data
        except OSError:
            return  # its other side was closed

    def written(self) -> str:
        self.stream.close()
        self._thread.join(30)
        return self._read.decode().replace("\r\n", "\n")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    for name, value in (("LC_ALL", "C.UTF-8"), ("TERM", "xterm"), ("NO_COLOR", ""), ("COLUMNS", str(COLUMNS))):
        monkeypatch.setenv(name, value)
    reader, writer = pty.openpty()
    terminal = Terminal(os.fdopen(writer, "w", encoding="utf-8"), reader)
    yield terminal
    terminal.written()
    os.close(reader)


LAID_OUT = (("ls",), ("show", RUN_ID, "n1"), ("tree", RUN_ID), ("tree", RUN_ID, "--why"), ("cost", RUN_ID))
WHOLE = (("best", RUN_ID), ("show", RUN_ID), ("show", RUN_ID, "best"), ("show", RUN_ID, "n1", "--answer"))
LONG = (("diff", RUN_ID, "1"), ("best", RUN_ID, "--source"), ("show", RUN_ID, "--json"), ("tree", RUN_ID, "--json"))


@pytest.mark.parametrize("command", [*LAID_OUT, *WHOLE, *LONG])
def test_nothing_acts_on_the_terminal_and_what_is_laid_out_fits_it(
    command: tuple[str, ...], tmp_path: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile_run(tmp_path)
    monkeypatch.setattr("sys.stdout", terminal.stream)
    assert main([*command, "--runs-dir", str(tmp_path)]) == 0
    written = terminal.written()
    for colour in ("\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[36m", "\x1b[m"):  # ours, of a diff
        written = written.replace(colour, "") if command[0] == "diff" else written
    assert all(sign.isprintable() or sign in "\n\t" for sign in written)
    assert written.strip()
    if command in LAID_OUT:
        assert all(columns_of(line) <= COLUMNS for line in written.splitlines())
