"""A whole search in one event loop: the real bus and actors, a scripted model, simulated builders and evaluators."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator

import anyio
import msgspec

from actors.builder import serve_builds
from actors.bus.memory import MemoryBus
from actors.bus.stream import EventStore, MemoryStore
from actors.coder.actor import serve_writes
from actors.evaluator import serve_evaluations
from actors.llm.base import Model, Request, ScriptedModel
from actors.planner.actor import plan_run
from actors.planner.history import History, fold
from actors.planner.jobs import queues_of
from actors.worker.taking import FixedQueues
from evaluators.simulated import SimulatedBuilder, SimulatedEvaluator
from messages.codec import Body, decode_body, encode
from messages.events import RunStarted
from messages.facts import Decided, Fact, RunFinished
from messages.settings import SearchSettings
from messages.tasks import Candidate, Target, TaskDescription, TaskSpec
from messages.verdicts import Interval, Measured, Verdict, Wrong

TARGET = Target(arch="x86_64", march="x86-64-v3", toolchain="g++ 12", device="cpu")
TASK = TaskSpec(name="t", source="kernelbench", text="# problem")
DESCRIPTION = TaskDescription(
    task_id=TASK.task_id,
    name="t",
    language="cpp",
    tensors=(),
    prompt="# Task\n\nMake it fast.",
    entry_point="ksearch_run",
    bytes_moved=1,
)
_NODE_ID = re.compile(r"\bn[1-9]\d*\b")


def landscape(candidate: Candidate) -> Verdict:
    """A verdict that depends on the program's text alone: one in four is wrong, the others are 0.5 to 4 times fast."""
    draw = random.Random(candidate.candidate_id)
    if draw.random() < 0.25:
        return Wrong(reason="3 of 9 elements differ")
    credit = 0.5 + 3.5 * draw.random() ** 2
    return Measured(
        timed=True,
        latency_us=1000 / credit,
        reference_latency_us=1000.0,
        speedup_vs_reference=credit * 1.02,
        speedup_interval=Interval(low=credit, high=credit * 1.04),
        pairs=8,
    )


def coder_answers() -> Callable[[Request], str]:
    """Return a coder that writes another program every time."""
    numbers = itertools.count()

    def answer(_: Request) -> str:
        return f'Done.\n\n```cpp path=kernel.cpp\n// {next(numbers)}\nextern "C" int ksearch_run();\n```\n'

    return answer


def planner_answers(*, news: int, seed: int = 0) -> Callable[[Request], str]:
    """Return a planner that inserts `news` actions and edits nodes that its prompt names; they may have moved on."""
    draw = random.Random(seed)
    titles = itertools.count()

    def answer(request: Request) -> str:
        seen = sorted(set(_NODE_ID.findall(request.prompt)))
        edits: list[dict[str, object]] = [
            {
                "op": "insert",
                "parent": "n0" if not seen or draw.random() < 0.3 else draw.choice(seen),
                "title": f"idea {next(titles)}",
                "description": "try it",
                "difficulty": draw.randint(1, 5),
                "priority": round(draw.random(), 2),
            }
            for _ in range(news)
        ]
        if seen:
            edits += [
                {"op": "update", "node": draw.choice(seen), "priority": round(draw.random(), 2)},
                {"op": "prune", "node": draw.choice(seen), "reason": "no use"},
            ]
        return "```json\n" + msgspec.json.encode({"summary": "", "edits": edits}).decode() + "\n```"

    return answer


def both(planner: Callable[[Request], str], coder: Callable[[Request], str]) -> Callable[[Request], str]:
    """Return one function that answers both roles."""
    return lambda request: planner(request) if request.role == "planner" else coder(request)


class Rig:
    """One run and what it left."""

    def __init__(
        self,
        settings: SearchSettings,
        *,
        run_id: str = "rig",
        store: EventStore | None = None,
        description: TaskDescription = DESCRIPTION,
    ) -> None:
        self.started = RunStarted(
            run_id=run_id, task=TASK, description=description, target=TARGET, settings=settings, seed=7
        )
        kept = store or MemoryStore()
        self.bus = MemoryBus(lambda _: kept)
        self.bodies: list[tuple[int, Body]] = []

    async def search(
        self,
        model: Model,
        *,
        judge: Callable[[Candidate], Verdict] = landscape,
        coder_model: Model | None = None,
        evaluation_s: float = 0.0,
        slots: int | None = None,
    ) -> RunFinished:
        """Run the search from its first event to its end."""
        run_id, wide = self.started.run_id, slots or self.started.settings.branches
        if await self.bus.open_stream(run_id) == 0:
            await self.bus.publish(run_id, encode(self.started), msg_id=f"{run_id}.started")
        write, build, evaluate = (FixedQueues(queue) for queue in queues_of(self.started))
        finished: list[RunFinished] = []

        async def lead(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            finished.append(await plan_run(self.bus, model, run_id=run_id, task_status=task_status))
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            await tasks.start(lead)
            evaluator = SimulatedEvaluator(judge, wall_s=evaluation_s)
            tasks.start_soon(_serve_writes, self.bus, coder_model or model, write, wide)
            tasks.start_soon(_serve_builds, self.bus, build, wide)
            tasks.start_soon(_serve_evaluations, self.bus, evaluator, evaluate, wide)
        await self.read()
        return finished[0]

    async def read(self) -> None:
        """Take the stream's records."""
        run_id = self.started.run_id
        last = await self.bus.open_stream(run_id)
        self.bodies = []
        events = self.bus.events(run_id)
        async for posted in events:
            self.bodies.append((posted.seq, decode_body(posted.payload)))
            if posted.seq == last:
                break
        await events.aclose()

    def facts(self) -> Iterator[Fact]:
        """Yield the run's facts in order."""
        for _, body in self.bodies:
            if isinstance(body, Decided):
                yield from body.facts

    def folded(self) -> History:
        """Return the fold of the stream."""
        return fold(self.bodies)


def scripted(*, news: int = 4, planner_s: float = 0.0, coder_s: float = 0.0) -> tuple[ScriptedModel, ScriptedModel]:
    """Return a planner's and a coder's model."""
    planner = ScriptedModel(planner_answers(news=news), latency_s=planner_s)
    return planner, ScriptedModel(coder_answers(), latency_s=coder_s)


async def _serve_writes(bus: MemoryBus, model: Model, queues: FixedQueues, slots: int) -> None:
    await serve_writes(bus, model, queues=queues, slots=slots)


async def _serve_builds(bus: MemoryBus, queues: FixedQueues, slots: int) -> None:
    await serve_builds(bus, SimulatedBuilder(), queues=queues, slots=slots)


async def _serve_evaluations(bus: MemoryBus, evaluator: SimulatedEvaluator, queues: FixedQueues, slots: int) -> None:
    await serve_evaluations(bus, evaluator, queues=queues, slots=slots)
