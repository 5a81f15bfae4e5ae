"""The judge's service: open one task, then check or time candidates until the evaluator goes away."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import torch

from evaluators.hardware.target import CPU
from evaluators.judge.candidate.bench import Bench
from evaluators.judge.candidate.candidate import Host, HostError
from evaluators.judge.candidate.gpu_memory import free_bytes, has_as_much_free, within_memory
from evaluators.judge.candidate.profiling import profile
from evaluators.judge.candidate.runner import RunnerError, open_launcher
from evaluators.judge.check.checking import Checker, Glance
from evaluators.judge.data.memory import release_scratch
from evaluators.judge.description import describe_problem
from evaluators.judge.intake.examining import Reads, bytes_read, examine
from evaluators.judge.intake.kept import kept_or_made
from evaluators.judge.protocol import (
    Artifact,
    Baseline,
    Check,
    Describe,
    Described,
    JudgeChannel,
    Judged,
    JudgeFailed,
    Open,
    Opened,
    Passed,
    ProblemBroken,
    Profile,
    Profiled,
    Time,
)
from evaluators.judge.reference.baseline import BaselineError, BaselineSide
from evaluators.judge.reference.gpu_baseline import DEVICE, GpuBaselineSide
from evaluators.judge.reference.problem import ProblemError
from evaluators.judge.time import heartbeat
from evaluators.judge.time.cores import AwakeCores, CoresError, require_cores
from evaluators.judge.time.cpu import Timer
from evaluators.judge.time.gpu import GpuTimer, is_healthy
from evaluators.judge.workloads import (
    Loaded,
    Rooms,
    choose_threads,
    gpu_reference_ns,
    load_problems,
    open_rooms,
    workloads_of,
)
from evaluators.languages import support_of
from evaluators.languages.interpreting import why_untimed
from evaluators.process.guard import become_subreaper
from messages.base import ConfigError, ProtocolError
from messages.commands import Purpose
from messages.tasks import Intake, TaskDescription, TaskSpec


def serve(descriptor: int) -> int:
    """Serve the evaluator at the other end of a socket until it closes it. Returns an exit code."""
    become_subreaper()
    heartbeat.begin()
    channel = JudgeChannel(socket.socket(fileno=descriptor))
    opened = channel.receive()
    if not isinstance(opened, Open):
        return 2
    threads = opened.task.rules.threads or torch.get_num_threads()
    try:
        if opened.work == "both":
            _serve_gpu(channel, opened)
        elif opened.work == "time":
            _serve_timings(channel, opened, threads)
        else:
            _serve_checks(channel, opened, threads)
    except ProblemBrokenError as error:
        channel.send(ProblemBroken(text=f"problem {opened.task.name!r}: {error}"))
        return 0
    except CoresError as error:
        channel.send(JudgeFailed(text=str(error), permanent=True))
        return 1
    except (BaselineError, HostError, ProblemError, RunnerError) as error:
        channel.send(JudgeFailed(text=str(error)))
        return 1
    return 0


class ProblemBrokenError(Exception):
    """The problem cannot be used at all."""


def _serve_checks(channel: JudgeChannel, opened: Open, threads: int) -> None:
    host = Host()
    support = support_of(opened.language)
    untimed = bool(why_untimed(opened.task, opened.language, "cpu"))
    launcher = open_launcher(
        support.runner, for_gpus="none" if opened.task.calling == "module" else "all" if untimed else "some"
    )
    loaded, description = _loaded_and_described(opened, CPU)
    reference_ns = choose_threads([each.problem for each in loaded])
    rooms = open_rooms(loaded, support, launcher, opened.limits, threads=threads, reference_ns=reference_ns)
    benches = rooms.shown
    checkers = _Checkers(rooms, opened.task, is_slow=untimed)
    channel.send(Opened())
    while (request := channel.receive()) is not None:
        match request:
            case Describe():
                channel.send(Described(description=_examined(description, opened.task, benches)))
            case Check(artifact=artifact, purpose=purpose):
                answer = checkers.check(artifact, purpose)
                if isinstance(answer, Judged):
                    host.answer_for(answer.verdict)
                channel.send(answer)
            case _:
                raise ProtocolError(f"a checking judge was sent {type(request).__name__}")


def _serve_timings(channel: JudgeChannel, opened: Open, threads: int) -> None:
    require_cores(opened.task.rules.threads)
    host = Host()
    # First, since forks must come before the first use of OpenMP.
    descriptors = (channel.fileno(),)
    awake = AwakeCores(close_fds=descriptors)
    baselines = [
        BaselineSide(opened.task, workload, threads=threads, close_fds=descriptors)
        for workload in workloads_of(opened.task, hidden=False)
    ]
    try:
        loaded = load_problems(opened.task, CPU, hidden=False)
    except ProblemError as error:
        raise ProblemBrokenError(str(error)) from error
    support = support_of(opened.language)
    benches = open_rooms(
        loaded,
        support,
        open_launcher(support.runner),
        opened.limits,
        threads=threads,
        reference_ns=choose_threads([each.problem for each in loaded]),
        keep=awake.pids | {baseline.pid for baseline in baselines},
    ).shown
    timer = Timer(benches, opened.task, baselines, awake)
    channel.send(Opened())
    while (request := channel.receive()) is not None:
        if not isinstance(request, Time):
            raise ProtocolError(f"a timing judge was sent {type(request).__name__}")
        verdict = timer.time(request.artifact, request.purpose, request.keep_above)
        host.answer_for(verdict)
        channel.send(Judged(verdict=verdict))
        timer.renew()


def _serve_gpu(channel: JudgeChannel, opened: Open) -> None:
    """Check and time on a GPU, one candidate at a time."""
    # Forks come before the first use of the GPU.
    kinds: tuple[Baseline, ...] = ("", opened.baseline) if opened.baseline else ("",)
    awake = AwakeCores(close_fds=(channel.fileno(),))
    baselines = [
        [GpuBaselineSide(opened.task, kind, workload, close_fds=(channel.fileno(),)) for kind in kinds]
        for workload in workloads_of(opened.task, hidden=False)
    ]
    support = support_of(opened.language, "cuda")
    launcher = open_launcher(support.runner)
    loaded, description = _loaded_and_described(opened, DEVICE)
    rooms = open_rooms(
        loaded,
        support,
        launcher,
        opened.limits,
        threads=1,
        reference_ns=[gpu_reference_ns(each.problem) for each in loaded],
        keep=awake.pids | {baseline.pid for sides in baselines for baseline in sides},
    )
    benches = rooms.shown
    timer = GpuTimer(benches, opened.task, baselines, awake)
    # After everything necessary: data kept for the next candidates gets the rest.
    checkers = _Checkers(rooms, opened.task, is_slow=False)
    free = free_bytes()
    channel.send(Opened())
    while (request := channel.receive()) is not None:
        if isinstance(request, Describe):
            channel.send(Described(description=_examined(description, opened.task, benches)))
            continue
        if not isinstance(request, Check | Time | Profile):
            raise ProtocolError(f"a judge was sent {type(request).__name__}")
        answer: Passed | Judged | Profiled
        if isinstance(request, Profile):
            release_scratch(DEVICE)
            answer = profile(timer, request.artifact)
        else:
            judge = partial(_answer_on_gpu, request, checkers, timer)
            answer = within_memory(judge, checkers.forget, checkers.keep, partial(has_as_much_free, free))
        if not is_healthy():
            channel.send(JudgeFailed(text="the GPU no longer computes for the judge"))
            return
        channel.send(answer)


def _answer_on_gpu(request: Check | Time, checkers: _Checkers, timer: GpuTimer) -> Passed | Judged:
    release_scratch(DEVICE)
    if isinstance(request, Time):
        return Judged(verdict=timer.time(request.artifact, request.purpose, request.keep_above))
    glance = partial(timer.glance, keep_above=request.keep_above) if request.keep_above else None
    return checkers.check(request.artifact, request.purpose, glance)


def _loaded_and_described(opened: Open, device: str) -> tuple[list[Loaded], TaskDescription]:
    try:
        loaded = load_problems(opened.task, device, hidden=True)
        shown = {each.name: each.problem for each in loaded if not each.is_hidden}
        several = shown if len(shown) > 1 else {}
        return loaded, describe_problem(opened.task, loaded[0].problem, opened.language, several)
    except (ProblemError, ConfigError) as error:
        raise ProblemBrokenError(str(error)) from error


def _examined(description: TaskDescription, task: TaskSpec, benches: Sequence[Bench]) -> TaskDescription:
    """Add whether the task can tell a kernel from a trick; computed once, for requests to describe the task.

    Of several shown workloads only the cheapest is examined.
    """
    problem = min(benches, key=lambda bench: bench.reference_ns).problem

    def look() -> Intake:
        shares = {bench.workload: Reads(bench.problem).mean for bench in benches} if problem.device != CPU else {}
        return msgspec.structs.replace(examine(problem, task.tolerance), read_shares=shares)

    intake = kept_or_made(task, problem.device, look)
    return _with_needed(msgspec.structs.replace(description, intake=intake), intake.read_shares)


def _with_needed(description: TaskDescription, shares: Mapping[str, float]) -> TaskDescription:
    if not shares:
        return description
    workloads = tuple(
        msgspec.structs.replace(one, bytes_needed=bytes_read(one.tensors, shares.get(one.name, 1.0)))
        for one in description.workloads
    )
    needed = workloads[0].bytes_needed if workloads else bytes_read(description.tensors, min(shares.values()))
    return msgspec.structs.replace(description, bytes_needed=needed, workloads=workloads)


class _Checkers:
    """Checks candidates; confirmations on hidden workloads, too, in memory that no other process sees."""

    def __init__(self, rooms: Rooms, task: TaskSpec, *, is_slow: bool) -> None:
        self._rooms, self._task, self._is_slow = rooms, task, is_slow
        self._shown = Checker(rooms.shown, task, is_slow=is_slow)
        self._all: Checker | None = None

    def check(self, artifact: Artifact, purpose: Purpose, glance: Glance | None = None) -> Passed | Judged:
        """Return whether it passed, or what is wrong with it; without confirmation also whether it is too slow."""
        checker = self._shown
        if purpose == "confirm" and self._rooms.is_hiding:
            # Made on first use: most tasks have nothing hidden, and most candidates are never confirmed.
            checker = self._all = self._all or Checker(self._rooms.open_all(), self._task, is_slow=self._is_slow)
        is_screened = purpose == "screen"
        answer = checker.check(artifact, is_brief=is_screened, glance=glance if is_screened else None)
        return msgspec.structs.replace(answer, isolation=checker.isolation)

    def forget(self) -> bool:
        """Drop the data that is kept for the next candidates, and keep none for now. Returns True if there was any."""
        were_there = [checker.forget() for checker in self._checkers]
        if any(were_there):
            release_scratch(DEVICE)
        return any(were_there)

    def keep(self, less: bool) -> None:
        """Keep data again: as much as before, or half as much from now on."""
        for checker in self._checkers:
            checker.keep(less=less)

    @property
    def _checkers(self) -> list[Checker]:
        return [checker for checker in (self._shown, self._all) if checker is not None]
