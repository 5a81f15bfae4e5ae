"""A world for the pure core: answers its requests in any order, with any outcome, twice, late, or not at all."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import Branch, Requested, SearchState
from messages.base import ROOT, Usage
from messages.edits import EditScript, Insert
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
    BuildRequested,
    ConfirmationRequested,
    EvaluationRequested,
    Fact,
    PlanRequested,
    WriteRequested,
)
from messages.models import Lineup
from messages.settings import Budget, SearchSettings
from messages.tasks import Candidate, SourceFile, Target, TaskDescription, TaskSpec
from messages.verdicts import DidNotBuild, Interval, Measured, Verdict, Wrong

RequestT = TypeVar("RequestT", bound=Requested)
RUN = "test-run"
WRONG = Wrong(reason="1 of 4 elements differ")
TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 12", device="cpu")
TASK = TaskSpec(name="t", source="kernelbench", text="# problem")
DESCRIPTION = TaskDescription(
    task_id=TASK.task_id, name="t", language="cpp", tensors=(), prompt="do it", entry_point="ksearch_run", bytes_moved=1
)


def started(settings: SearchSettings, initial: Candidate | None = None, lineup: Lineup | None = None) -> RunStarted:
    return RunStarted(
        run_id=RUN,
        task=TASK,
        description=DESCRIPTION,
        target=TARGET,
        settings=settings,
        seed=7,
        initial=initial,
        lineup=lineup or Lineup(),
    )


def candidate(text: str) -> Candidate:
    return Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="k.cpp", text=text),))


def measured(credit: float, width: float = 0.05) -> Measured:
    return Measured(
        timed=True,
        latency_us=1000.0 / credit,
        reference_latency_us=1000.0,
        speedup_vs_reference=credit + width / 2,
        speedup_interval=Interval(low=credit, high=credit + width),
        pairs=8,
    )


def written(job_id: str, text: str | None, complaint: str = "no code block", *, declined: str = "") -> CandidateWritten:
    return CandidateWritten(
        job_id=job_id,
        branch_id="",
        candidate=candidate(text) if text is not None else None,
        complaint="" if text is not None or declined else complaint,
        declined=declined,
        prompt="p",
        answer="a",
        model="m",
        usage=Usage(calls=1, prompt_tokens=10, completion_tokens=5),
        latency_s=0.1,
    )


def built(job_id: str, candidate_id: str, *, ok: bool = True) -> CandidateBuilt:
    outcome = Built(artifact_id=f"a{candidate_id}") if ok else DidNotBuild(reason="expected ';'")
    return CandidateBuilt(job_id=job_id, candidate_id=candidate_id, outcome=outcome, target=TARGET)


def evaluated(job_id: str, candidate_id: str, verdict: Verdict, *, lease_s: float = 0.0) -> CandidateEvaluated:
    return CandidateEvaluated(job_id=job_id, candidate_id=candidate_id, verdict=verdict, device="cpu", lease_s=lease_s)


def proposed(job_id: str, script: EditScript | None, complaint: str = "not JSON") -> EditsProposed:
    return EditsProposed(
        job_id=job_id,
        script=script,
        complaint="" if script else complaint,
        prompt="p",
        answer="a",
        model="m",
        usage=Usage(calls=1, prompt_tokens=100, completion_tokens=50),
        latency_s=1.0,
    )


def inserts(count: int, parent: str = ROOT, prefix: str = "idea", priority: float = 0.5) -> EditScript:
    return EditScript(
        edits=tuple(
            Insert(parent=parent, title=f"{prefix} {index}", description="d", difficulty=2, priority=priority)
            for index in range(count)
        )
    )


class World:
    """Drives the core as the planner's actor does, and remembers all facts."""

    def __init__(
        self, settings: SearchSettings, *, initial: Candidate | None = None, lineup: Lineup | None = None
    ) -> None:
        self.state = SearchState()
        self.facts: list[Fact] = []
        self.give(started(settings, initial, lineup))

    def give(self, event: Event) -> tuple[Fact, ...]:
        facts = decide(self.state, event)
        for fact in facts:
            self.state = evolve(self.state, fact)
        self.facts.extend(facts)
        return facts

    def plan(self) -> PlanRequested:
        plan = self.state.plan
        assert plan is not None
        return plan

    def requests(self, kind: type[RequestT]) -> list[RequestT]:
        """Return the open requests of one kind, oldest first."""
        found = [job.request for job in self.state.jobs.values() if isinstance(job.request, kind)]
        return sorted(found, key=lambda request: int(request.job_id.rsplit("-", 1)[1][1:]))

    def propose(self, script: EditScript | None) -> tuple[Fact, ...]:
        return self.give(proposed(self.plan().job_id, script))

    def attempt(self, text: str, verdict: Verdict, *, branch_id: str | None = None, lease_s: float = 0.0) -> None:
        """Carry the oldest write (of a branch) through to its verdict."""
        write = next(
            request
            for request in self.requests(WriteRequested)
            if isinstance(request, WriteRequested) and branch_id in (None, request.branch_id)
        )
        self.give(written(write.job_id, text))
        candidate_id = candidate(text).candidate_id
        build = next(
            request
            for request in self.requests(BuildRequested)
            if isinstance(request, BuildRequested) and request.candidate_id == candidate_id
        )
        ok = not isinstance(verdict, DidNotBuild)
        self.give(built(build.job_id, candidate_id, ok=ok))
        if ok:
            self.evaluate(text, verdict, lease_s=lease_s)

    def evaluate(self, text: str, verdict: Verdict, *, lease_s: float = 0.0) -> None:
        """Answer the screening of a candidate."""
        candidate_id = candidate(text).candidate_id
        evaluation = next(
            request
            for request in self.requests(EvaluationRequested)
            if isinstance(request, EvaluationRequested) and request.candidate_id == candidate_id
        )
        self.give(evaluated(evaluation.job_id, candidate_id, verdict, lease_s=lease_s))

    def confirm(self, text: str, verdict: Verdict, *, lease_s: float = 0.0) -> tuple[Fact, ...]:
        """Answer the confirmation that is under way, which is this candidate's."""
        (request,) = self.requests(ConfirmationRequested)
        assert isinstance(request, ConfirmationRequested)
        assert request.candidate_id == candidate(text).candidate_id
        return self.again(request, verdict, lease_s=lease_s)

    def again(self, request: Requested, verdict: Verdict, *, lease_s: float = 0.0) -> tuple[Fact, ...]:
        """Answer a confirmation, whether it is awaited or not."""
        assert isinstance(request, ConfirmationRequested)
        answer = evaluated(request.job_id, request.candidate_id, verdict, lease_s=lease_s)
        return self.give(replace(answer, purpose="confirm"))


def search(
    branches: int = 1,
    window: int = 2,
    rounds: int = 100,
    tries: int = 3,
    *,
    confirm: bool = False,
    samples: int = 1,
    repair_window: int | None = None,
    **budget: float | int | None,
) -> World:
    """Begin a search; most tests are not about confirmations, and are shorter without."""
    limits = Budget(max_rounds=rounds, **budget)  # type: ignore[arg-type]
    return World(
        SearchSettings(
            branches=branches,
            stagnation_window=window,
            repair_window=repair_window,
            samples=samples,
            max_tries=tries,
            confirm=confirm,
            budget=limits,
        )
    )


def only_branch(world: World) -> Branch:
    (branch,) = world.state.branches.values()
    return branch


def facts_of(world: World, kind: type) -> list[object]:
    return [fact for fact in world.facts if isinstance(fact, kind)]


def writes(world: World) -> list[WriteRequested]:
    return [fact for fact in world.facts if isinstance(fact, WriteRequested)]
