"""The planner: leads a run by folding its event stream and deciding on each event."""

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
from actors.planner.answers import Adviser
from actors.planner.core.decide import react
from actors.planner.core.state import Requested, SearchState, state_hash
from actors.planner.history import History, read_history
from actors.planner.jobs import KINDS, JobRequest, given_answer, job_for, queue_of, queues_of, write_queues
from actors.planner.prompts import plan_request
from actors.planner.run_card import CardKeeper
from actors.planner.unserved import report_unserved
from actors.supervision import see_through
from actors.tracing import span, trace_headers
from actors.worker.work import PARTING_S
from messages.base import ProtocolError, Role
from messages.codec import encode
from messages.events import ClockTicked, Event, JobLost, JobsUnserved
from messages.facts import (
    BuildRequested,
    ConfirmationRequested,
    Decided,
    EvaluationRequested,
    InitialRequested,
    PlanRequested,
    RunFinished,
    WriteRequested,
)
from messages.subjects import role_of


class Mandate(msgspec.Struct, frozen=True, kw_only=True):
    """One process's leadership of a run, for as long as its lease."""

    holder: str
    session: str
    """Part of message ids, unique to this leadership; letters and digits only."""
    check: Callable[[], None]
    """Raises `ConflictError` when the leadership is over."""
    watches_workers: bool = True
    """True if workers announce themselves, so that missing ones can be reported."""


_LONGEST_S = 60.0
"""Longest interval between ticks: the most running time that a killed run can forget."""
_SHORTEST_S = 1.0
_PART = 20
"""Divisor of the remaining time: a tick takes at most one part in this number."""


async def ticks(now: Callable[[], SearchState]) -> AsyncIterator[ClockTicked]:
    """Yield the run's running time over all its sessions, excluding pauses; `now` returns the state."""
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
"""Number of facts between state hashes in decisions."""
_AUDIT_S = 30.0
"""Interval at which a distributed run submits unanswered jobs again."""
_FULL_QUEUE_WAIT_S = 0.5
_ANSWERERS: dict[type[JobRequest | PlanRequested], Role] = {
    WriteRequested: "coder",
    BuildRequested: "builder",
    EvaluationRequested: "evaluator",
    InitialRequested: "evaluator",
    ConfirmationRequested: "evaluator",
    PlanRequested: "planner",
}

log = structlog.get_logger(__name__)


async def plan_run(
    bus: Bus,
    model: Model,
    *,
    run_id: str,
    mandate: Mandate | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> RunFinished:
    """Lead a run to its end and return the fact that ended it: fold its stream, then decide on each new event.

    The stream must be open and begin with `run.started.v1`. Reports `started` once the run's queues are declared.

    `mandate` is this process's leadership if other processes may lead the run too; `lead` provides one.

    Raises:
        messages.base.BusError: the bus failed, or another process leads this run.
        messages.base.ProtocolError: the stream is not that of a run.
    """
    who = {"worker": mandate.holder} if mandate else {}
    with structlog.contextvars.bound_contextvars(run=run_id, **who):
        history = await read_history(bus, run_id)
        planner = _Planner(bus, model, history, mandate)
        if planner.finished is None:
            await planner.declare_queues(history)
            log.info("run led", after=history.last_seq)
        task_status.started()
        async with anyio.create_task_group() as tasks:
            planner.tasks = tasks
            finished = await planner.lead(history)
            tasks.cancel_scope.cancel()
        await planner.conclude(finished)
        return finished


class _Planner:
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
        """Sequence number up to which all events were decided on."""
        self.finished = None if history.pending_resumption else history.finished

    async def declare_queues(self, history: History) -> None:
        """Declare the run's queues; leave a queue unchanged if another release declared it."""
        _, *others = queues_of(self._texts.started)
        for queue in (*write_queues(self._texts.started, history.lineup), *others):
            try:
                await self._bus.declare_queue(QueueSpec(name=queue, run_id=self._run_id))
            except ConflictError as error:
                log.warning("queue left as another release declared it", queue=queue, error=str(error))

    async def lead(self, history: History) -> RunFinished:
        if self.finished is not None:
            return self.finished
        self.tasks.start_soon(self._report_dead_letters)
        for seq, event in history.pending:
            await self._handle(seq, event, act=False)
        await self._give_up_unread(history.last_seq)
        if not self._state.finished:  # after a resume nobody else has the jobs
            self._send_owed(list(self._state.jobs))
        if self._state.settings.budget.wall_clock_s is not None:  # a resumption may have set it
            self.tasks.start_soon(self._tick, history.last_seq)
        if self._mandate is not None:
            self.tasks.start_soon(self._audit)
            self.tasks.start_soon(self._card(self._mandate).keep)
            if self._mandate.watches_workers:
                started = self._texts.started
                self.tasks.start_soon(report_unserved, self._bus, started, self._now, self._say_unserved)
        return await self._follow(after=history.last_seq)

    async def conclude(self, finished: RunFinished) -> None:
        """Announce the end of the run to other users of the bus, and drop the run's queues."""
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
        """Process an event; None stands for an omitted one."""
        with span("decide", {"run": self._run_id, "seq": posted.seq}, headers=posted.headers):
            if event is not None:
                self._texts.take(event)
                await self._handle(posted.seq, event)
            if self.finished is None:
                await self._give_up_if_owed(posted.msg_id, by=posted.role)

    async def _handle(self, seq: int, event: Event, *, act: bool = True) -> None:
        try:
            step = react(self._state, event)
        except ProtocolError as error:
            log.warning("event ignored", seq=seq, error=str(error))
            return
        if not step.facts:
            return
        state = step.state
        crossed = state.facts // HASH_EVERY > self._state.facts // HASH_EVERY
        decided = Decided(cause=seq, facts=tuple(step.facts), state_hash=state_hash(state) if crossed else None)
        self._last_decision = await self._publish(
            decided, msg_id=f"{self._run_id}.d{seq}{self._session}", expected_last_decision=self._last_decision
        )
        withheld = [job_id for job_id, job in self._state.jobs.items() if job.withheld]
        self._state = state
        self._asked = {job_id: at for job_id, at in (self._asked | step.asked).items() if job_id in state.jobs}
        self.finished = next((fact for fact in step.facts if isinstance(fact, RunFinished)), self.finished)
        if act:
            self._send_owed([*step.asked, *withheld])

    def _send_owed(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            job = self._state.jobs.get(job_id)
            if job is not None and not job.withheld:
                self._send(job.request)

    def _send(self, request: JobRequest | PlanRequested) -> None:
        state, started = self._asked[request.job_id], self._texts.started
        if isinstance(request, PlanRequested):
            find, profile = self._texts.find, self._texts.profile
            question = plan_request(state, request, started.description, programs=find, profiles=profile)
            self.tasks.start_soon(self._propose, question)
            return
        if request.job_id in self._submitting:
            return
        if isinstance(request, WriteRequested) and request.given_id is not None:  # in a coder's place
            given = given_answer(self._texts, request, request.given_id)
            self.tasks.start_soon(partial(self._publish, given, msg_id=f"{given.job_id}.r"))
            return
        self._submitting.add(request.job_id)
        job, queue = job_for(state, self._texts, request), queue_of(started, state.lineup, request)
        begins = isinstance(request, WriteRequested | ConfirmationRequested)
        self.tasks.start_soon(self._submit, queue, job.job_id, encode(job), begins)

    async def _submit(self, queue: str, job_id: str, payload: bytes, begins: bool) -> None:
        """Queue a job; `begins` is True if the job is the first of a trace."""
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
        """Check jobs that have been unanswered for a while, so that none waits for ever."""
        before: set[str] = set()
        while True:
            await anyio.sleep(_AUDIT_S)
            owed = {job_id: job.request for job_id, job in self._state.jobs.items() if not job.withheld}
            for job_id in before & owed.keys():
                await self._look_after(owed[job_id])
            before = set(owed)

    async def _look_after(self, request: Requested) -> None:
        """Submit a job again (a no-op if it is queued), or give it up if its answer arrived and is unusable."""
        answer = f"{request.job_id}.r"
        seq = await self._bus.find(self._run_id, answer, role=_ANSWERERS[type(request)])
        if seq is None and not isinstance(request, PlanRequested) and request.job_id in self._state.jobs:
            self._send(request)
        elif seq is not None and seq <= self._read_seq:
            await self._give_up_if_owed(answer)

    async def _propose(self, question: Request) -> None:
        job_id = question.request_id
        with (
            structlog.contextvars.bound_contextvars(job=job_id),
            span("plan", {"run": self._run_id, "job": job_id}, is_first=True),
        ):
            log.info("planner asked")
            proposed = self._texts.quoting(await self._adviser.propose(question))
            await see_through(partial(self._publish, proposed, msg_id=f"{job_id}.r"), within_s=PARTING_S)

    async def _report_dead_letters(self) -> None:
        while True:
            letter = await self._bus.next_dead_letter(self._run_id)
            error = f"given up after {letter.deliveries} deliveries: {letter.reason}"
            lost = JobLost(job_id=letter.msg_id, kind=KINDS[role_of(letter.queue)], error=error)
            await self._publish(lost, msg_id=f"{letter.msg_id}.r")

    async def _give_up_unread(self, last_seq: int) -> None:
        """Give up jobs with unusable answers up to here, since other answers under their ids would be refused."""
        for job_id, job in list(self._state.jobs.items()):
            role = _ANSWERERS[type(job.request)]
            answered = await self._bus.find(self._run_id, f"{job_id}.r", role=role)
            if answered is not None and answered <= last_seq:
                await self._give_up_if_owed(f"{job_id}.r")

    async def _give_up_if_owed(self, msg_id: str, *, by: Role | None = None) -> None:
        """Give up a job that is still open after its answer: the answer was invalid or from a newer release.

        Does nothing if the sender `by` is not in charge of the job, since the real answer may still arrive.
        """
        job_id = msg_id.removesuffix(".r")
        job = self._state.jobs.get(job_id)
        if job is None or job_id == msg_id:
            return
        answerer = _ANSWERERS[type(job.request)]
        if by not in (None, answerer):
            return
        error = "its answer cannot be used: it is of a newer release, or makes no sense"
        log.warning("job given up", job=job_id, error=error)
        await self._publish(JobLost(job_id=job_id, kind=KINDS[answerer], error=error), msg_id=f"{job_id}.l")

    async def _tick(self, session: int) -> None:
        count = 0
        async for ticked in ticks(self._now):
            count += 1
            await self._publish(ticked, msg_id=f"{self._run_id}.t{session}{self._session}-{count}")

    async def _publish(self, body: Event | Decided, *, msg_id: str, expected_last_decision: int | None = None) -> int:
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
