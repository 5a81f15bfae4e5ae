"""Titles, answers, kernels and logs that want to act on a terminal, as every command shows them: on one, and piped."""

from __future__ import annotations

import importlib
import inspect
import os
import pty
import re
import struct
import termios
import threading
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import TextIO

import msgspec
import pytest

from ksearch_async import cli
from ksearch_async.cli import main
from ksearch_async.settings.run_config import RunConfig, save_config
from ksearch_async.views.text import columns_of
from messages.codec import Body
from messages.events import CandidateBuilt, CandidateWritten, RunStarted
from messages.tasks import Candidate, SourceFile
from messages.verdicts import DidNotBuild, Measured, Verdict, Wrong
from tests.ksearch_async.stories import FAST, RUN_ID, TARGET, attempt, decided, inserted, on_disk, records_of, story

COLUMNS = 80
EVIL = (
    "\x1b[H\x1b[2J\x1b]0;owned\x07\x1b[30m\x1b[40mhidden\x1b[0m\u202eright to left\u202c \u2066\x7f\x00\x9b2J 列列"
    "\r\nbest       99.00x, forged\nmore"
)
TITLES = (EVIL, "行列の積を融合する " * 20, "e\u0301" * 60, "\u2764\ufe0f", "x" * 1_000_000, "line\nbreak\ttab")


def hostile_run(folder: Path) -> None:
    bodies = [record.body for record in story(None)[:3]]
    opening = bodies[0]
    assert isinstance(opening, RunStarted)
    bodies[0] = msgspec.structs.replace(opening, task=msgspec.structs.replace(opening.task, name=EVIL))
    bodies.append(decided(*(inserted(f"n{at}", "n0" if at % 2 else "n1", title) for at, title in enumerate(TITLES, 2))))
    for number, verdict in (
        (3, FAST),
        (6, Wrong(reason=EVIL + "w" * 5000, printed=EVIL)),
        (9, DidNotBuild(reason=EVIL, log=EVIL)),
    ):
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


SHOWING: dict[str, tuple[tuple[str, ...], ...]] = {
    "ls": ((),),
    "show": ((RUN_ID,), (RUN_ID, "n1"), (RUN_ID, "best"), (RUN_ID, "2"), (RUN_ID, "3")),
    "tree": ((RUN_ID,), (RUN_ID, "--why")),
    "best": ((RUN_ID,),),
    "diff": ((RUN_ID, "1"),),
    "compare": ((RUN_ID, RUN_ID), (RUN_ID, RUN_ID, "--markdown")),
    "cost": ((RUN_ID,),),
    "replay": ((RUN_ID,),),
    "report": ((RUN_ID, "-o", "report.html"),),
    "watch": ((RUN_ID,), (RUN_ID, "--view", "plain")),
    "resume": ((RUN_ID,),),
    "eval": ((RUN_ID,),),
    "export": ((RUN_ID, "-o", "kernel.py"),),
    "tell": ((RUN_ID, EVIL.replace("\x00", "")), (RUN_ID, "--list")),
    "inject": ((RUN_ID, __file__, "--title", EVIL),),
    **dict.fromkeys(("stop", "pause", "continue"), ((RUN_ID,),)),
    **dict.fromkeys(("pin", "boost", "forbid", "release"), ((RUN_ID, "n1"),)),
}
"""Every command that shows or steers a run, with its arguments; raw outputs (`--source` and the like) are not here."""
OURS = re.compile(r"\x1b\[(?:\?2026[hl]|\?25[hl]|\d+A|[JK]|(?:(?:[12]|3[1-6])(?:;(?:[12]|3[1-6]))*)?m)|\r")
"""What diffs and live views send to a terminal; `EVIL` has none of it, but for the last."""
OF_NO_RUN = {"web", "doctor", "planner"}
"""These are about no run that they print: a server of pages, a check of the folder, an actor."""


def test_every_command_about_runs_is_tried() -> None:
    about_runs = set()
    for command in (name for name in cli._COMMANDS if not name.startswith("-")):
        word = command.replace("-", "_")
        module = importlib.import_module(f"ksearch_async.cli.{cli._MODULES.get(word, word)}")
        given = inspect.signature(getattr(module, f"{word}_command", lambda: None)).parameters
        if {"run", "runs", "runs_dir"} & set(given):
            about_runs.add(command)
    assert about_runs - OF_NO_RUN == set(SHOWING)


@pytest.mark.parametrize("is_piped", [True, False])
@pytest.mark.parametrize(("command", "given"), [(word, each) for word, forms in SHOWING.items() for each in forms])
def test_no_command_about_a_run_passes_control_characters_or_forged_lines_on(
    command: str,
    given: tuple[str, ...],
    is_piped: bool,
    tmp_path: Path,
    terminal: Terminal,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KSEARCH_RUNS_DIR", str(tmp_path))
    if not is_piped:
        monkeypatch.setattr("sys.stdout", terminal.stream)
        monkeypatch.setattr("sys.stderr", terminal.stream)
    main([command, *given])
    said = capsys.readouterr()
    written = said.out + said.err if is_piped else terminal.written()
    if command in {"diff", "watch"} and not is_piped:
        written = OURS.sub("", written)
    assert written.strip()
    assert [sign for sign in written if not (sign.isprintable() or sign in "\n\t")] == []
    assert [line for line in written.splitlines() if line.startswith("best       99.00x")] == []
