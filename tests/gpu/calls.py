"""Calls of one candidate on a GPU in one manner or another, without a verdict: to see what each choice costs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median

import msgspec
import torch

from evaluators.judge.candidate.bench import Bench, Calls
from evaluators.judge.candidate.candidate import CandidateSide
from evaluators.judge.candidate.runner import Launcher, open_launcher
from evaluators.judge.data.families import GIVEN, TimedData
from evaluators.judge.protocol import GPU_LIMITS, Artifact
from evaluators.judge.reference.gpu_baseline import DEVICE
from evaluators.judge.reference.problem import Problem
from evaluators.judge.time.gpu_cover import Cover
from evaluators.languages import support_of
from evaluators.process.guard import become_subreaper
from evaluators.runners.base import BURST
from messages.base import Language
from messages.tasks import Measure, TaskSpec, Tolerance

WARM_UPS = 5
_BURST_S = 150.0


class BurstError(Exception):
    """A candidate failed among calls that nobody looks at."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """What the events said of many calls, in us."""

    mean: float
    median: float
    calls: int
    """0: as many as the runner chose to."""


@contextmanager
def bench_of(task: TaskSpec, language: Language, folder: Path, launcher: Launcher) -> Iterator[Bench]:
    """Lend a judge's bench in this process, which becomes the parent of runners."""
    become_subreaper()
    os.chdir(folder)
    support = support_of(language, "cuda")
    problem = Problem(task, DEVICE)
    yield Bench(problem, support, launcher, GPU_LIMITS, threads=1, reference_ns=10_000_000)
    torch.cuda.empty_cache()


def launcher_of(language: Language) -> Launcher:
    """Return what starts runners; before this process touches the GPU."""
    return open_launcher(support_of(language, "cuda").runner)


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How calls are made."""

    cover_us: int | None = None
    """Behind how long a cover each call begins; `IDLE`: behind a sweep of the L2 cache. None: behind nothing."""
    measure: Measure = "eager"
    """`device` has calls begin while the GPU is held."""
    fresh: bool = False
    """New data for each; else the same."""
    burst: bool = False
    """The runner makes one call after the other by itself, as competitions' harnesses do."""


def spans(bench: Bench, artifact: Artifact, manner: Manner, *, calls: int = 100) -> Spans:
    """Call a candidate many times, in a process of its own; see `many_spans`."""
    return many_spans(bench, artifact, {"": manner}, calls=calls)[""]


def many_spans(
    bench: Bench, artifact: Artifact, manners: Mapping[str, Manner], *, calls: int = 100, stops: bool = False
) -> dict[str, Spans]:
    """Call a candidate many times in one manner after the other, in one process.

    Args:
        bench: the task's.
        artifact: the candidate.
        manners: of the calls, by name.
        calls: how many count of each, after some that do not.
        stops: whether the candidate is stopped between its calls.

    Raises:
        BurstError: a call failed among those that the runner makes by itself.
    """
    data = TimedData(bench.problem, Tolerance(profile="gpumode:2e-2,2e-2"), same_state=bench.returns_outputs)
    with bench.side(artifact, stops=stops) as side:
        side.load()
        made, first = Calls(bench, side), data.next()
        made.on(first)
        found: dict[str, Spans] = {}
        for name, manner in manners.items():
            bench.buffers.lay(first.inputs, first.state)
            if manner.burst:
                found[name] = _burst(side)
            else:
                fresh = data if manner.fresh else None
                found[name] = _asked(bench, made, first.family, manner, calls, fresh)
        return found


def _burst(side: CandidateSide) -> Spans:
    mean_ns = side.ask(BURST, limit_s=_BURST_S).status
    if mean_ns <= 0:
        raise BurstError(f"a call of the burst failed with status {-mean_ns}")
    return Spans(mean=mean_ns / 1000, median=mean_ns / 1000, calls=0)


def _asked(bench: Bench, made: Calls, family: str, manner: Manner, calls: int, fresh: TimedData | None) -> Spans:
    cover = Cover(manner.measure).over(manner.cover_us) if manner.cover_us is not None else None
    found: list[int] = []
    for number in range(WARM_UPS + calls):
        if fresh is not None:
            new = fresh.next()
            bench.buffers.lay(new.inputs, new.state)
        made.again(family, cover=cover)
        if number >= WARM_UPS:
            found.append(made.last.span_ns)
    return Spans(mean=mean(found) / 1000, median=median(found) / 1000, calls=calls)


def right_on_given(bench: Bench, artifact: Artifact, *, rtol: float, atol: float) -> bool:
    """Say whether a candidate is right on data as drawn, by the rule of competitions: no other data, no other scale."""
    data = TimedData(bench.problem, Tolerance(profile=f"gpumode:{rtol:g},{atol:g}"), same_state=bench.returns_outputs)
    given = data.next()
    while given.family != GIVEN:
        given = data.next()
    with bench.side(artifact) as side:
        side.load()
        Calls(bench, side).on(given)
        expected = bench.problem.reference(given.inputs, given.state)
        pairs = zip(bench.buffers.results, expected, strict=True)
        return all(torch.allclose(out, right, rtol=rtol, atol=atol) for out, right in pairs)
