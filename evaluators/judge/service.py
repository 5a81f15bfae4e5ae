"""The judge's life: open one task, then check candidates or time them until the evaluator goes away."""

from __future__ import annotations

import socket
import time

import torch

from evaluators.guard import become_subreaper
from evaluators.judge.awake import AwakeCores
from evaluators.judge.baseline import BaselineError, BaselineSide
from evaluators.judge.bench import Bench
from evaluators.judge.checking import Checker
from evaluators.judge.description import describe_problem
from evaluators.judge.launching import RunnerError, open_launcher
from evaluators.judge.problem import Problem, ProblemError
from evaluators.judge.protocol import (
    Check,
    Describe,
    Described,
    JudgeChannel,
    Judged,
    JudgeFailed,
    Open,
    Opened,
    ProblemBroken,
    Time,
)
from evaluators.judge.timing import Timer
from evaluators.languages import support_of
from messages.errors import ConfigError, ProtocolError

_SHORT_CALL_NS = 100_000_000


def serve(descriptor: int) -> int:
    """Serve the evaluator at the other end of a socket until it closes it. Returns an exit code."""
    become_subreaper()
    channel = JudgeChannel(socket.socket(fileno=descriptor))
    opened = channel.receive()
    if not isinstance(opened, Open):
        return 2
    threads = torch.get_num_threads()
    try:
        if opened.work == "time":
            _serve_timings(channel, opened, threads)
        else:
            _serve_checks(channel, opened, threads)
    except ProblemBrokenError as error:
        channel.send(ProblemBroken(text=f"problem {opened.task.name!r}: {error}"))
        return 0
    except (BaselineError, ProblemError, RunnerError) as error:
        channel.send(JudgeFailed(text=str(error)))
        return 1
    return 0


class ProblemBrokenError(Exception):
    """The problem cannot be used at all."""


def _serve_checks(channel: JudgeChannel, opened: Open, threads: int) -> None:
    support = support_of(opened.language)
    launcher = open_launcher(support.runner)
    try:
        problem = Problem(opened.task)
        description = describe_problem(opened.task, problem, opened.language)
    except (ProblemError, ConfigError) as error:
        raise ProblemBrokenError(str(error)) from error
    reference_ns = _choose_threads(problem)
    bench = Bench(problem, support, launcher, opened.limits, threads=threads, reference_ns=reference_ns)
    checker = Checker(bench, opened.task, is_slow=bool(support.not_timed))
    channel.send(Opened())
    while (request := channel.receive()) is not None:
        match request:
            case Describe():
                channel.send(Described(description=description))
            case Check(artifact=artifact):
                channel.send(checker.check(artifact))
            case _:
                raise ProtocolError(f"a checking judge was sent {type(request).__name__}")


def _serve_timings(channel: JudgeChannel, opened: Open, threads: int) -> None:
    # Before anything else: the forks must come before the first use of OpenMP.
    descriptors = (channel.fileno(),)
    awake = AwakeCores(close_fds=descriptors)
    baseline = BaselineSide(opened.task, close_fds=descriptors)
    try:
        problem = Problem(opened.task)
    except ProblemError as error:
        raise ProblemBrokenError(str(error)) from error
    keep = awake.pids | {baseline.pid}
    support = support_of(opened.language)
    launcher, reference_ns = open_launcher(support.runner), _choose_threads(problem)
    bench = Bench(problem, support, launcher, opened.limits, threads=threads, reference_ns=reference_ns, keep=keep)
    timer = Timer(bench, opened.task, baseline, awake)
    channel.send(Opened())
    while (request := channel.receive()) is not None:
        if not isinstance(request, Time):
            raise ProtocolError(f"a timing judge was sent {type(request).__name__}")
        channel.send(Judged(verdict=timer.time(request.artifact, request.purpose)))
        timer.renew()


def _choose_threads(problem: Problem) -> int:
    """Compute on one thread where that is quick: the judge shares the host with what it measures.

    The baseline worker, a process of its own, keeps torch's default.

    Returns:
        About how long the reference takes, in ns.
    """
    default = torch.get_num_threads()
    torch.set_num_threads(1)
    inputs = problem.inputs(seed=0)
    begun = time.perf_counter_ns()
    problem.reference(inputs, problem.state)
    took_ns = time.perf_counter_ns() - begun
    if took_ns > _SHORT_CALL_NS:
        torch.set_num_threads(default)
    return took_ns
