"""The planner: reads its run's events in order, decides, journals what it decided, and only then acts on it.

It is the only writer of decisions, fenced by the sequence number of the last one. Its own questions to the model run
as tasks beside the mailbox and come back as events, so the tree never waits for an answer.
"""

from __future__ import annotations

import anyio
import structlog
from anyio.abc import TaskGroup, TaskStatus

from actors.bus.base import Bus, QueueFullError, QueueSpec
from actors.llm.base import Answer, Model, Request
from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, state_hash
from actors.planner.history import read_history
from actors.planner.jobs import JobRequest, job_for, queue_of, queues_of
from actors.planner.prompts import parse_script, plan_request
from actors.planner.texts import Texts
from actors.work import MAX_ATTEMPTS, delay_s
from messages.codec import decode_body, encode
from messages.errors import ModelError, ProtocolError
from messages.events import ClockTicked, EditsProposed, Event, JobKind, JobLost
from messages.facts import (
    Decided,
    Fact,
    PlanRequested,
    RunFinished,
)

HASH_EVERY = 10
"""A decision carries the state's hash whenever the count of facts passes a multiple of this."""
_TICK_S = 5.0
_FULL_QUEUE_WAIT_S = 0.5
_KINDS: dict[str, JobKind] = {"write": "write", "build": "build", "evaluate": "evaluate"}

log = structlog.get_logger(__name__)


async def plan_run(
    bus: Bus,
    model: Model,
    *,
    run_id: str,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> RunFinished:
    """Lead a run to its end: fold what its stream holds, then decide on each event that comes.

    The stream must be open and begin with `run.started.v1`; it says `started` once the run's queues are declared.

    Args:
        bus: where the run's stream and queues are.
        model: answers the planner's questions.
        run_id: which run.
        task_status: told when workers may begin to pull.

    Returns:
        The fact that ended the run.

    Raises:
        messages.errors.BusError: the bus failed, or somebody else leads this run.
        messages.errors.ProtocolError: the stream is not that of a run.
    """
    history = await read_history(bus, run_id)
    planner = _Planner(bus, model, history.state, history.texts, last_decision=history.last_decision)
    for queue in queues_of(history.texts.started):
        await bus.declare_queue(QueueSpec(name=queue, run_id=run_id))
    log.info("run led", run=run_id, after=history.last_seq)
    task_status.started()
    async with anyio.create_task_group() as tasks:
        planner.tasks = tasks
        tasks.start_soon(planner.report_dead_letters)
        for seq, event in history.pending:
            await planner.handle(seq, event, act=False)
        planner.act_on_all()
        if history.texts.started.settings.budget.wall_clock_s is not None:
            tasks.start_soon(planner.tick, history.last_seq)
        finished = await planner.follow(after=history.last_seq)
        tasks.cancel_scope.cancel()
    return finished


class _Planner:
    """State, texts and the place in the stream; the coroutines that read and write them."""

    tasks: TaskGroup

    def __init__(self, bus: Bus, model: Model, state: SearchState, texts: Texts, *, last_decision: int) -> None:
        self._bus = bus
        self._model = model
        self._state = state
        self._texts = texts
        self._last_decision = last_decision
        self._run_id = texts.started.run_id
        self._finished: RunFinished | None = None
        self._was_answered = False

    async def follow(self, *, after: int) -> RunFinished:
        """Handle events until the run is over."""
        if self._finished is not None:
            return self._finished
        events = self._bus.events(self._run_id, after=after)
        try:
            async for posted in events:
                body = decode_body(posted.payload)
                if isinstance(body, Decided):
                    continue
                self._texts.take(body)
                await self.handle(posted.seq, body)
                if self._finished is not None:
                    return self._finished
        finally:
            await events.aclose()
        raise ProtocolError(f"the event stream of run {self._run_id!r} ended before the run did")

    async def handle(self, seq: int, event: Event, *, act: bool = True) -> None:
        """Decide on one event, make the decision durable, fold it, act on it."""
        try:
            facts = decide(self._state, event)
        except ProtocolError as error:
            log.warning("event ignored", run=self._run_id, seq=seq, error=str(error))
            return
        if not facts:
            return
        state = self._state
        for fact in facts:
            state = evolve(state, fact)
        crossed = state.facts // HASH_EVERY > self._state.facts // HASH_EVERY
        decided = Decided(cause=seq, facts=facts, state_hash=state_hash(state) if crossed else None)
        self._last_decision = await self._bus.publish(
            self._run_id,
            encode(decided),
            msg_id=f"{self._run_id}.d{seq}",
            expected_last_decision=self._last_decision,
        )
        self._state = state
        self._note_end(facts)
        if act:
            self._act_on(facts)

    def act_on_all(self) -> None:
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

    def _send(self, request: JobRequest | PlanRequested) -> None:
        """Start what carries a request out. Everything it needs is taken from the state now."""
        if isinstance(request, PlanRequested):
            question = plan_request(self._state, request, self._texts.started.description)
            self.tasks.start_soon(self._propose, question)
            return
        job = job_for(self._state, self._texts, request)
        self.tasks.start_soon(self._submit, queue_of(self._texts.started, request), job.job_id, encode(job))

    async def _submit(self, queue: str, job_id: str, payload: bytes) -> None:
        while True:
            try:
                await self._bus.submit(queue, payload, msg_id=job_id)
            except QueueFullError:
                await anyio.sleep(_FULL_QUEUE_WAIT_S)
            else:
                return

    async def _propose(self, question: Request) -> None:
        """Ask the planner's model for edits; the answer is an event like any other."""
        log.info("planner asked", job=question.request_id)
        result: Event
        try:
            answer = await self._ask(question)
        except ModelError as error:
            result = JobLost(
                job_id=question.request_id,
                kind="plan",
                error=str(error),
                permanent=error.permanent,
                faults=error.faults,
            )
        else:
            script, complaint = parse_script(answer.text)
            result = EditsProposed(
                job_id=question.request_id,
                script=script,
                complaint=complaint,
                prompt=question.prompt,
                answer=answer.text,
                model=answer.model,
                usage=answer.usage,
                latency_s=answer.latency_s,
                faults=answer.faults,
            )
        await self._bus.publish(self._run_id, encode(result), msg_id=f"{question.request_id}.r")

    async def _ask(self, question: Request) -> Answer:
        """Ask, and ask again under the same id as workers do: an endpoint that is away for minutes costs no question.

        Not before anything was answered: a run that cannot begin shall say so soon.

        Raises:
            ModelError: the last one.
        """
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._model.complete(question)
            except ModelError as error:
                if error.permanent or attempt >= MAX_ATTEMPTS or not self._was_answered:
                    raise
                log.info("planner's question failed", job=question.request_id, attempt=attempt, error=str(error))
                await anyio.sleep(delay_s(attempt))
            else:
                self._was_answered = True
                return answer

    async def report_dead_letters(self) -> None:
        """Turn jobs that nobody could do into events, so that the search never waits for them."""
        while True:
            letter = await self._bus.next_dead_letter(self._run_id)
            kind = _KINDS[letter.queue.split(".")[2]]
            error = f"given up after {letter.deliveries} deliveries: {letter.reason}"
            lost = JobLost(job_id=letter.msg_id, kind=kind, error=error)
            await self._bus.publish(self._run_id, encode(lost), msg_id=f"{letter.msg_id}.r")

    async def tick(self, session: int) -> None:
        """Tell the core how long the run has been going, over all its sessions."""
        before, began = self._state.elapsed_s, anyio.current_time()
        count = 0
        while True:
            await anyio.sleep(_TICK_S)
            count += 1
            ticked = ClockTicked(elapsed_s=round(before + anyio.current_time() - began, 3))
            await self._bus.publish(self._run_id, encode(ticked), msg_id=f"{self._run_id}.t{session}-{count}")

    def _note_end(self, facts: tuple[Fact, ...]) -> None:
        for fact in facts:
            if isinstance(fact, RunFinished):
                self._finished = fact
