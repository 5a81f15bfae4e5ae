"""The judge's life: open one task, then describe it and judge candidates until the evaluator goes away."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from evaluators.guard import become_subreaper
from evaluators.judge.baseline import BaselineError, BaselineSide
from evaluators.judge.description import describe_problem
from evaluators.judge.evaluation import Bench, Evaluation
from evaluators.judge.problem import Problem, ProblemError
from evaluators.judge.protocol import (
    Describe,
    Described,
    Judge,
    JudgeChannel,
    Judged,
    JudgeFailed,
    LeaseGranted,
    LeaseReturned,
    LeaseWanted,
    Open,
    Opened,
    ProblemBroken,
    Work,
)
from messages.errors import ConfigError, ProtocolError

_SHORT_CALL_S = 0.1


def serve(descriptor: int) -> int:
    """Serve the evaluator at the other end of a socket until it closes it. Returns an exit code."""
    become_subreaper()
    channel = JudgeChannel(socket.socket(fileno=descriptor))
    opened = channel.receive()
    if not isinstance(opened, Open):
        return 2
    threads = torch.get_num_threads()
    # Before anything else: the fork must come before the first use of OpenMP.
    baseline = BaselineSide(opened.task, close_fds=(descriptor,))
    try:
        problem = Problem(opened.task)
        description = describe_problem(opened.task, problem, opened.language)
        _choose_threads(problem)
        bench = Bench(opened.task, problem, baseline, opened.limits, threads=threads)
    except (ProblemError, ConfigError) as error:
        channel.send(ProblemBroken(text=f"problem {opened.task.name!r}: {error}"))
        return 0
    except BaselineError as error:
        channel.send(JudgeFailed(text=str(error)))
        return 1
    channel.send(Opened())
    while (request := channel.receive()) is not None:
        match request:
            case Describe():
                channel.send(Described(description=description))
            case Judge():
                try:
                    verdict = Evaluation(bench, request, lambda work: _lease(channel, work)).run()
                except (BaselineError, ProblemError) as error:
                    channel.send(JudgeFailed(text=str(error)))
                    return 1
                channel.send(Judged(verdict=verdict))
            case _:
                raise ProtocolError(f"a judge was sent {type(request).__name__} when nothing was asked")
    return 0


@contextmanager
def _lease(channel: JudgeChannel, work: Work) -> Iterator[None]:
    channel.send(LeaseWanted(work=work))
    if not isinstance(channel.receive(), LeaseGranted):
        raise ProtocolError("no lease was granted")
    try:
        yield
    finally:
        channel.send(LeaseReturned())


def _choose_threads(problem: Problem) -> None:
    """Compute on one thread where that is quick: the judge shares the host with what it measures.

    The baseline worker, a process of its own, keeps torch's default.
    """
    default = torch.get_num_threads()
    torch.set_num_threads(1)
    inputs = problem.inputs(seed=0)
    begun = time.perf_counter()
    problem.reference(inputs, problem.state)
    if time.perf_counter() - begun > _SHORT_CALL_S:
        torch.set_num_threads(default)
