"""The real planner's core searching a landscape, in virtual time: no process, no clock, no model."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator

import msgspec

from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import Requested, SearchState
from messages.base import Usage
from messages.events import (
    Built,
    CandidateBuilt,
    CandidateEvaluated,
    CandidateWritten,
    EditsProposed,
    Event,
    RunStarted,
)
from messages.facts import (
    AttemptFinished,
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    Fact,
    PlanRequested,
    WriteRequested,
)
from messages.settings import SearchSettings
from messages.tasks import Candidate, SourceFile, Target, TaskDescription, TaskSpec
from messages.verdicts import DidNotBuild, Interval, Measured, Verdict
from tests.landscape.coder import Coder, Draft
from tests.landscape.landscape import Landscape
from tests.landscape.planner import Planner, technique_of

MEASURING_NOISE = 0.01
"""Spread of the logarithm of a measured speedup."""
INTERVAL = 0.02
CODER_S, PLANNER_S, SECONDS_SPREAD = 40.0, 45.0, 0.4
"""Medians of log-normal latencies of models, and the spread of their logarithm."""
BUILD_S, EVALUATION_S = 5.0, 8.0
DEVICES = 8

_TASK = TaskSpec(name="landscape", source="kernelbench", text="# none")
_TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++", device="simulated")
_USAGE = Usage(calls=1)


class Point(msgspec.Struct, frozen=True):
    """The search after one round."""

    seconds: float
    effect: float
    """Logarithm of the incumbent's true speedup; 0 while there is none."""


class Search:
    """One search; `points()` leads it to its end."""

    def __init__(self, landscape: Landscape, settings: SearchSettings, seed: int) -> None:
        self._landscape = landscape
        self._coder, self._planner = Coder(landscape, seed), Planner(landscape, seed)
        self._draw = random.Random(f"search {seed}")
        self._settings, self._seed = settings, seed
        self._drafts: dict[str, Draft] = {}
        self._queue: list[tuple[float, int, Event]] = []
        self._devices = [0.0] * DEVICES
        self._now, self._sent = 0.0, 0
        self.state = SearchState()

    def points(self) -> Iterator[Point]:
        """Yield the search after each round."""
        self._later(0.0, self._started())
        while self._queue:
            self._now, _, event = heapq.heappop(self._queue)
            for fact in decide(self.state, event):
                self.state = evolve(self.state, fact)
                self._act(fact)
                if isinstance(fact, AttemptFinished) and fact.round:
                    yield Point(self._now, self._reached())

    def _reached(self) -> float:
        best = self.state.incumbent
        return self._landscape.effect(self._drafts[best.candidate_id]) if best else 0.0

    def _started(self) -> RunStarted:
        description = TaskDescription(
            task_id=_TASK.task_id,
            name="landscape",
            language="cpp",
            tensors=(),
            prompt="",
            entry_point="f",
            bytes_moved=0,
        )
        return RunStarted(
            run_id="landscape", task=_TASK, description=description, target=_TARGET, settings=self._settings,
            seed=self._seed,
        )  # fmt: skip

    def _later(self, seconds: float, event: Event) -> None:
        self._sent += 1
        heapq.heappush(self._queue, (self._now + seconds, self._sent, event))

    def _latency(self, median_s: float) -> float:
        return median_s * math.exp(self._draw.gauss(0.0, SECONDS_SPREAD))

    def _act(self, fact: Fact) -> None:
        if isinstance(fact, Requested):
            self._answer(fact)

    def _answer(self, asked: Requested) -> None:
        match asked:
            case PlanRequested():
                script = self._planner.edits(self.state, asked, dict(self._drafts))
                self._later(
                    self._latency(PLANNER_S),
                    EditsProposed(
                        job_id=asked.job_id, script=script, prompt="", answer="", model="m", usage=_USAGE, latency_s=0.0
                    ),
                )
            case WriteRequested():
                self._later(self._latency(CODER_S), self._written(asked))
            case BuildRequested():
                failure = self._drafts[asked.candidate_id].failure
                outcome = failure if isinstance(failure, DidNotBuild) else Built(artifact_id=asked.candidate_id)
                self._later(
                    BUILD_S,
                    CandidateBuilt(
                        job_id=asked.job_id, candidate_id=asked.candidate_id, outcome=outcome, target=_TARGET
                    ),
                )
            case EvaluationRequested() | ConfirmationRequested():
                free = heapq.heappop(self._devices)
                done = max(self._now, free) + EVALUATION_S
                heapq.heappush(self._devices, done)
                verdict = self._judged(self._drafts[asked.candidate_id])
                self._later(
                    done - self._now,
                    CandidateEvaluated(
                        job_id=asked.job_id, candidate_id=asked.candidate_id, verdict=verdict, device="simulated",
                        lease_s=EVALUATION_S,
                    ),
                )  # fmt: skip
            case _:
                raise AssertionError(asked)

    def _written(self, asked: WriteRequested) -> CandidateWritten:
        node = self.state.node(self.state.branches[asked.branch_id].node_id)
        base = self._drafts[asked.base_id] if asked.base_id else None
        current = self._drafts[asked.current_id] if asked.current_id else None
        draft = self._coder.write(asked.mode, technique_of(node), base, current)
        text = f"{sorted(draft.techniques)} {draft.tuning:.3f} {draft.serial}"
        candidate = Candidate(language="cpp", entry_point="f", files=(SourceFile(path="k.cpp", text=text),))
        self._drafts[candidate.candidate_id] = draft
        return CandidateWritten(
            job_id=asked.job_id, branch_id=asked.branch_id, candidate=candidate, prompt="", answer="", model="m",
            usage=_USAGE, latency_s=0.0,
        )  # fmt: skip

    def _judged(self, draft: Draft) -> Verdict:
        if draft.failure is not None:
            return draft.failure
        speedup = math.exp(self._landscape.effect(draft) + self._draw.gauss(0.0, MEASURING_NOISE))
        return Measured(
            timed=True,
            latency_us=1000 / speedup,
            reference_latency_us=1000.0,
            speedup_vs_reference=speedup,
            speedup_interval=Interval(low=speedup * (1 - INTERVAL), high=speedup * (1 + INTERVAL)),
            pairs=8,
        )


def best_of_n(landscape: Landscape, rounds: int, seed: int) -> Iterator[Point]:
    """Yield what the best of independent attempts from the reference is after each of them, one at a time."""
    coder, best, now = Coder(landscape, seed), 0.0, 0.0
    for _ in range(rounds):
        now += CODER_S + BUILD_S + EVALUATION_S
        draft = coder.direct()
        if draft.failure is None:
            best = max(best, landscape.effect(draft))
        yield Point(now, best)
