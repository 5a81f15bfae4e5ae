"""The judge's end of a side: what is believed of its answers, and when it is looked at."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from evaluators.judge.candidate.side import Line, NoAnswerError
from evaluators.judge.time.cores import cpu_ns
from evaluators.runners.base import FRAME, MAGIC
from tests.evaluators.judge.programs import program

ANSWERS = """
import socket, sys, threading
control = socket.socket(fileno=int(sys.argv[1]))
def spin():
    while True: pass
threading.Thread(target=spin, daemon=True).start()
while frame := control.recv(64):
    control.send(frame)
"""
"""A side that answers, and has a thread that never rests."""


@contextmanager
def side(*, stops: bool = True) -> Iterator[tuple[Line, int]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-S", "-c", ANSWERS, str(theirs.fileno())]
        process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), process_group=0)
    line = Line(ours, process.pid, 7, stops=stops)
    try:
        yield line, process.pid
    finally:
        process.kill()
        process.wait()
        line.close()


def test_nothing_is_read_of_a_process_while_its_call_is_timed() -> None:
    touched: list[str] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event in {"open", "os.listdir", "os.scandir"} and is_timed:
            touched.append(f"{event} {arguments[0]}")

    is_timed = False
    sys.addaudithook(note)
    with side(stops=False) as (line, _):
        line.exchange(1, limit_s=30)
        is_timed = True
        line.exchange(1, limit_s=30)
        is_timed = False
    assert touched == []


def test_a_side_that_is_stopped_between_its_answers_is_believed() -> None:
    with side() as (line, _):
        for _ in range(3):
            assert line.exchange(1, limit_s=30).elapsed_ns > 0


def test_the_outputs_are_looked_at_before_the_side_is_stopped_and_a_long_look_is_told() -> None:
    seen: list[int] = []

    with side() as (line, pid):

        def look() -> None:
            before_ns = cpu_ns(pid)
            while cpu_ns(pid) - before_ns < 5_000_000:
                os.sched_yield()
            seen.append(cpu_ns(pid) - before_ns)

        line.exchange(1, limit_s=30)
        answer = line.exchange(1, limit_s=30, look=look)
    assert seen, "it was running while it was looked at"
    assert answer.after_ns > 4_000_000


def test_a_side_that_was_continued_by_somebody_else_is_found_out() -> None:
    kinds: list[str] = []
    with side() as (line, pid):
        for _ in range(4):
            try:
                line.exchange(1, limit_s=30)
            except NoAnswerError as error:
                kinds.append(error.kind)
                break
            rested_ns = cpu_ns(pid)
            os.killpg(pid, signal.SIGCONT)
            while cpu_ns(pid) - rested_ns < 5_000_000:
                os.sched_yield()
    assert kinds == ["went on"]


def test_an_answer_that_is_there_before_the_request_is_none() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, program("print(flush=True); input()") as pid:
        line = Line(ours, pid, 7, stops=False)
        theirs.send(FRAME.pack(MAGIC, 1, 1, 7, 0, 0))
        with pytest.raises(NoAnswerError) as raised:
            line.exchange(1, limit_s=30)
        line.close()
    assert raised.value.kind == "bad frame"
