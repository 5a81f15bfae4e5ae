"""By what a planner leads a distributed run, beside others that stand by for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import partial

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup, TaskStatus

from actors.bus.base import Bus, ConflictError, Posted, QueueFullError, QueueSpec
from actors.bus.stream import body_of
from actors.llm.base import Model, Request
from actors.planner.adviser import Adviser
from actors.planner.card import CardKeeper
from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import Requested, SearchState, state_hash
from actors.planner.history import History, read_history
from actors.planner.jobs import JobRequest, given_answer, job_for, queue_of, queues_of, write_queues
from actors.planner.prompts import plan_request
from actors.planner.unserved import report_unserved
from actors.supervision import see_through
from actors.tracing import span, trace_headers
from actors.worker.work import PARTING_S
from messages.base import ProtocolError, Role
from messages.codec import encode
from messages.events import CandidateWritten, ClockTicked, Event, JobKind, JobLost, JobsUnserved
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    Decided,
    EvaluationRequested,
    Fact,
    InitialRequested,
    PlanRequested,
    RunFinished,
    WriteRequested,
)
from messages.subjects import role_of


class Mandate(msgspec.Struct, frozen=True, kw_only=True):
    """One leadership of one process, from its lease's beginning to its end."""

    holder: str
    """Name of the process."""
    session: str
    """Part of the ids of what only this leadership may say: no other one has it. Letters and digits."""
    check: Callable[[], None]
    """Raises `ConflictError` once the leadership is over."""
    watches_workers: bool = True
    """Workers say that they are there, so it can be told when there are none."""


_LONGEST_S = 60.0
"""What a run that is killed may at most forget of its time."""
_SHORTEST_S = 1.0
_PART = 20
"""A tick takes at most this part of what is left of the time, so that a run ends in time without a tick each second."""


async def ticks(now: Callable[[], SearchState]) -> AsyncIterator[ClockTicked]:
    """Yield how long the run has been going, over all its sessions and without its pauses.

    Args:
        now: returns the state as it is; its budget limits the time.
    """
    before_s, began, rested_s = now().elapsed_s, anyio.current_time(), 0.0
    while True:
        elapsed_s = before_s + anyio.current_time() - began - rested_s
        pause_s = pause_between(elapsed_s, now().settings.budget.wall_clock_s)
        await anyio.sleep(pause_s)
        if now().paused:
            rested_s += pause_s
        else:
            yield ClockTicked(elapsed_s=round(before_s + anyio.current_time() - began - rested_s, 3))


def pause_between(elapsed_s: float, limit_s: float | None) -> float:
    """Return how long to wait for the next tick."""
    left_s = (limit_s or 0.0) - elapsed_s
    return min(_LONGEST_S, max(_SHORTEST_S, left_s / _PART))


HASH_EVERY = 10
"""A decision carries the state's hash whenever the count of facts passes a multiple of this."""
_AUDIT_S = 30.0
"""How often the planner of a distributed run submits again what is still owed."""
_FULL_QUEUE_WAIT_S = 0.5
_KINDS: dict[str, JobKind] = {"write": "write", "build": "build", "evaluate": "evaluate"}
_KIND_OF: dict[type[JobRequest | PlanRequested], JobKind] = {
    WriteRequested: "write",
    BuildRequested: "build",
    EvaluationRequested: "evaluate",
    InitialRequested: "evaluate",
    ConfirmationRequested: "evaluate",
    PlanRequested: "plan",
}
_ANSWERERS: dict[JobKind, Role] = {"write": "coder", "build": "builder", "evaluate": "evaluator", "plan": "planner"}

log = structlog.get_logger(__name__)


async def plan_run(
    bus: Bus,
    model: Model,
    *,
    run_id: str,
    mandate: Mandate | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> RunFinished:
    """Lead a run to its end: fold what its stream holds, then decide on each event that comes.

    The stream must be open and begin with `run.started.v1`; it says `started` once the run's queues are declared.

    Args:
        bus: where the run's stream and queues are.
        model: answers the planner's questions.
        run_id: which run.
        mandate: by what it is led, where others may lead it too; `lead` gives one.
        task_status: told when workers may begin to pull.

    Returns:
        The fact that ended the run.

    Raises:
        messages.base.BusError: the bus failed, or somebody else leads this run.
        messages.base.ProtocolError: the stream is not that of a run.
    """
    who = {"worker": mandate.holder} if mandate else {}
    with structlog.contextvars.bound_contextvars(run=run_id, **who):
        return await _plan(bus, model, run_id, mandate, task_status)


async def _plan(
    bus: Bus, model: Model, run_id: str, mandate: Mandate | None, task_status: TaskStatus[None]
) -> RunFinished:
    history = await read_history(bus, run_id)
    planner = _Planner(bus, model, history, mandate)
    if planner.finished is None:
        await _declare_queues(bus, history)
        log.info("run led", after=history.last_seq)
    task_status.started()
    async with anyio.create_task_group() as tasks:
        planner.tasks = tasks
        finished = await planner.lead(history)
        tasks.cancel_scope.cancel()
    await planner.conclude(finished)
    return finished


async def _declare_queues(bus: Bus, history: History) -> None:
    _, *others = queues_of(history.texts.started)
    for queue in (*write_queues(history.texts.started, history.lineup), *others):
        try:
            await bus.declare_queue(QueueSpec(name=queue, run_id=history.texts.started.run_id))
        except ConflictError as error:
            log.warning("queue left as another release declared it", queue=queue, error=str(error))


class _Planner:
    """State, texts and the place in the stream; the coroutines that read and write them."""

    tasks: TaskGroup

    def __init__(self, bus: Bus, model: Model, history: History, mandate: Mandate | None) -> None:
        self._bus = bus
        self._adviser = Adviser(model, was_answered=history.state.usage_planner.calls > 0)
        self._mandate = mandate
        self._state = history.state
        self._texts = history.texts
        self._asked = dict(history.asked)
        self._last_decision = history.last_decision
        self._run_id = history.texts.started.run_id
        self._session = f"-{mandate.session}" if mandate else ""
        self._submitting: set[str] = set()
        self._unserved = 0
        self._read_seq = history.last_seq
        """Up to here all events were decided on."""
        self.finished = None if history.pending_resumption else history.finished

    async def lead(self, history: History) -> RunFinished:
        """Go on where the history ends."""
        if self.finished is not None:
            return self.finished
        self.tasks.start_soon(self._report_dead_letters)
        for seq, event in history.pending:
            await self._handle(seq, event, act=False)
        await self._give_up_unread(history.last_seq)
        self._act_on_all()
        if self._state.settings.budget.wall_clock_s is not None:  # a resumption may have set it
            self.tasks.start_soon(self._tick, history.last_seq)
        if self._mandate is not None:
            self._do_duties(self._mandate)
        return await self._follow(after=history.last_seq)

    def _do_duties(self, mandate: Mandate) -> None:
        """Begin what is owed to those who share the bus."""
        self.tasks.start_soon(self._audit)
        self.tasks.start_soon(self._card(mandate).keep)
        if mandate.watches_workers:
            self.tasks.start_soon(report_unserved, self._bus, self._texts.started, self._now, self._say_unserved)

    async def conclude(self, finished: RunFinished) -> None:
        """Tell those who share the bus that the run is over, and leave no job behind."""
        if self._mandate is not None:
            self._check()
            await self._bus.drop_queues(self._run_id)
            await self._card(self._mandate).close(finished)

    def _card(self, mandate: Mandate) -> CardKeeper:
        return CardKeeper(self._bus, self._texts.started, mandate.holder, self._now)

    def _now(self) -> SearchState:
        return self._state

    async def _say_unserved(self, unserved: JobsUnserved) -> None:
        self._unserved += 1
        await self._publish(unserved, msg_id=f"{self._run_id}.u{self._session}-{self._unserved}")

    async def _follow(self, *, after: int) -> RunFinished:
        """Handle events until the run is over.

        Raises:
            ConflictError: somebody else decides.
        """
        if self.finished is not None:
            return self.finished
        events = self._bus.events(self._run_id, after=after)
        try:
            async for posted in events:
                body = body_of(posted)
                if isinstance(body, Decided) and posted.seq > self._last_decision:
                    raise ConflictError(f"record {posted.seq} of run {self._run_id!r} is another planner's decision")
                if not isinstance(body, Decided):
                    await self._take(posted, body)
                if self.finished is not None:
                    return self.finished
                self._read_seq = posted.seq
        finally:
            await events.aclose()
        raise ProtocolError(f"the event stream of run {self._run_id!r} ended before the run did")

    async def _take(self, posted: Posted, event: Event | None) -> None:
        """Take in an event; None stands for one that is left out."""
        with span("decide", {"run": self._run_id, "seq": posted.seq}, headers=posted.headers):
            if event is not None:
                self._texts.take(event)
                await self._handle(posted.seq, event)
            if self.finished is None:
                await self._give_up_if_owed(posted.msg_id, by=posted.role)

    async def _handle(self, seq: int, event: Event, *, act: bool = True) -> None:
        """Decide on one event, make the decision durable, fold it, act on it."""
        try:
            facts = decide(self._state, event)
        except ProtocolError as error:
            log.warning("event ignored", seq=seq, error=str(error))
            return
        if not facts:
            return
        state, asked = self._state, {}
        for fact in facts:
            state = evolve(state, fact)
            if isinstance(fact, JobRequest | PlanRequested):
                asked[fact.job_id] = state
        crossed = state.facts // HASH_EVERY > self._state.facts // HASH_EVERY
        decided = Decided(cause=seq, facts=facts, state_hash=state_hash(state) if crossed else None)
        self._last_decision = await self._publish(
            decided, msg_id=f"{self._run_id}.d{seq}{self._session}", expected_last_decision=self._last_decision
        )
        rested = [job_id for job_id, job in self._state.jobs.items() if job.withheld]
        self._state = state
        self._asked = {job_id: at for job_id, at in (self._asked | asked).items() if job_id in state.jobs}
        self._note_end(facts)
        if act:
            self._act_on(facts)
            self._act_on_released(rested)

    def _act_on_all(self) -> None:
        """Send every job that the state owes: after a resume nobody else has them."""
        for job in list(self._state.jobs.values()):
            if not job.withheld and not self._state.finished:
                self._send(job.request)

    def _act_on(self, facts: tuple[Fact, ...]) -> None:
        for fact in facts:
            if not isinstance(fact, JobRequest | PlanRequested):
                continue
            job = self._state.jobs.get(fact.job_id)
            if job is not None and not job.withheld:
                self._send(fact)

    def _act_on_released(self, rested: list[str]) -> None:
        """Send the jobs that were withheld and are no longer."""
        for job_id in rested:
            job = self._state.jobs.get(job_id)
            if job is not None and not job.withheld:
                self._send(job.request)

    def _send(self, request: JobRequest | PlanRequested) -> None:
        """Start what carries a request out. Everything it needs is taken from the state at its request."""
        state = self._asked[request.job_id]
        if isinstance(request, PlanRequested):
            question = plan_request(
                state, request, self._texts.started.description, programs=self._texts.find, profiles=self._texts.profile
            )
            self.tasks.start_soon(self._propose, question)
            return
        if request.job_id in self._submitting:
            return
        if isinstance(request, WriteRequested) and request.given_id is not None:
            self.tasks.start_soon(self._publish_given, given_answer(self._texts, request, request.given_id))
            return
        self._submitting.add(request.job_id)
        job, queue = job_for(state, self._texts, request), queue_of(self._texts.started, state.lineup, request)
        begins = isinstance(request, WriteRequested | ConfirmationRequested)
        self.tasks.start_soon(self._submit, queue, job.job_id, encode(job), begins)

    async def _publish_given(self, written: CandidateWritten) -> None:
        """Say in a coder's place that a candidate is written: it is there already."""
        await self._publish(written, msg_id=f"{written.job_id}.r")

    async def _submit(self, queue: str, job_id: str, payload: bytes, begins: bool) -> None:
        """Queue a job; `begins` if it is the first of a trace."""
        with span(f"ask {role_of(queue)}", {"run": self._run_id, "job": job_id}, side="producer", is_first=begins):
            while job_id in self._state.jobs:
                self._check()
                try:
                    await self._bus.submit(queue, payload, msg_id=job_id, headers=trace_headers())
                    break
                except QueueFullError:
                    await anyio.sleep(_FULL_QUEUE_WAIT_S)
        self._submitting.discard(job_id)

    async def _audit(self) -> None:
        """See to it that nothing is owed for ever: look again and again for what has been owed for a while."""
        before: set[str] = set()
        while True:
            await anyio.sleep(_AUDIT_S)
            owed = {job_id: job.request for job_id, job in self._state.jobs.items() if not job.withheld}
            for job_id in before & owed.keys():
                await self._look_after(owed[job_id])
            before = set(owed)

    async def _look_after(self, request: Requested) -> None:
        """Submit a job again, which is refused if it is there; give it up if its answer is there and is none."""
        answer = f"{request.job_id}.r"
        seq = await self._bus.find(self._run_id, answer, role=_ANSWERERS[_KIND_OF[type(request)]])
        if seq is None and not isinstance(request, PlanRequested) and request.job_id in self._state.jobs:
            self._send(request)
        elif seq is not None and seq <= self._read_seq:
            await self._give_up_if_owed(answer)

    async def _propose(self, question: Request) -> None:
        """Ask the planner's model for edits; the answer is an event like any other."""
        job_id = question.request_id
        with (
            structlog.contextvars.bound_contextvars(job=job_id),
            span("plan", {"run": self._run_id, "job": job_id}, is_first=True),
        ):
            log.info("planner asked")
            proposed = self._texts.quoting(await self._adviser.propose(question))
            await see_through(partial(self._publish, proposed, msg_id=f"{job_id}.r"), within_s=PARTING_S)

    async def _report_dead_letters(self) -> None:
        """Turn jobs that nobody could do into events, so that the search never waits for them."""
        while True:
            letter = await self._bus.next_dead_letter(self._run_id)
            kind = _KINDS[letter.queue.split(".")[2]]
            error = f"given up after {letter.deliveries} deliveries: {letter.reason}"
            lost = JobLost(job_id=letter.msg_id, kind=kind, error=error)
            await self._publish(lost, msg_id=f"{letter.msg_id}.r")

    async def _give_up_unread(self, last_seq: int) -> None:
        """Give up jobs whose answers, up to here, nobody could use: other answers under their ids would be refused."""
        for job_id, job in list(self._state.jobs.items()):
            role = _ANSWERERS[_KIND_OF[type(job.request)]]
            answered = await self._bus.find(self._run_id, f"{job_id}.r", role=role)
            if answered is not None and answered <= last_seq:
                await self._give_up_if_owed(f"{job_id}.r")

    async def _give_up_if_owed(self, msg_id: str, *, by: Role | None = None) -> None:
        """Give a job up that is still owed though this was its answer: of a newer release, or nonsense.

        Not if it is known to be by somebody who has no business with it: the answer may still come.
        """
        job_id = msg_id.removesuffix(".r")
        job = self._state.jobs.get(job_id)
        if job is None or job_id == msg_id:
            return
        kind = _KIND_OF[type(job.request)]
        if by not in (None, _ANSWERERS[kind]):
            return
        error = "its answer cannot be used: it is of a newer release, or makes no sense"
        log.warning("job given up", job=job_id, error=error)
        await self._publish(JobLost(job_id=job_id, kind=kind, error=error), msg_id=f"{job_id}.l")

    async def _tick(self, session: int) -> None:
        """Tell the core how long the run has been going."""
        count = 0
        async for ticked in ticks(self._now):
            count += 1
            await self._publish(ticked, msg_id=f"{self._run_id}.t{session}{self._session}-{count}")

    def _note_end(self, facts: tuple[Fact, ...]) -> None:
        for fact in facts:
            if isinstance(fact, RunFinished):
                self.finished = fact

    async def _publish(self, body: Event | Decided, *, msg_id: str, expected_last_decision: int | None = None) -> int:
        """Say something on the run's stream, unless somebody else leads the run by now.

        Raises:
            ConflictError: somebody else does.
        """
        self._check()
        return await self._bus.publish(
            self._run_id,
            encode(body),
            msg_id=msg_id,
            headers=trace_headers(),
            expected_last_decision=expected_last_decision,
        )

    def _check(self) -> None:
        if self._mandate is not None:
            self._mandate.check()
