"""Replays a finished run: compares prompts, answers, decisions and tree with those of this release.

The journal replaces the outside world. In recorded order, for each event that was decided on:

1. A model's answer is found by its question: the prompt is rebuilt from the state at its request, and looked up by role
  and text. Answers that are found are parsed again. A verdict of an evaluator or builder is used as recorded.
2. `decide` decides on it, and the decision is compared with the journal's.
3. The facts are folded, and where the journal holds the state's hash, it is compared.

A prompt that is not found is a miss: a template, the digest, or the jobs have changed. The recorded answer is used
then, so that one miss does not become many. After the first different decision the journal's own are followed, for the
same reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from actors.bus.journal import read_journal
from actors.coder.actor import read_answer
from actors.coder.prompts import request_for
from actors.llm.base import Request, Role
from actors.llm.replay import Answered, Changes, Recording, answer_of
from actors.planner.answers import read_proposal
from actors.planner.core.decide import decide
from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState, is_question, state_hash
from actors.planner.jobs import Texts, job_for, whole_records
from actors.planner.prompts import plan_request
from ksearch_async.errors import refusal
from ksearch_async.runs.folder import find_run
from ksearch_async.settings.run_config import DEFAULT_RUNS_DIR
from messages.base import BusError, ProtocolError
from messages.codec import Record
from messages.commands import WriteCandidate
from messages.events import CandidateWritten, EditsProposed, Event, RunResumed
from messages.facts import Decided, Fact, PlanRequested, WriteRequested


def read_recording(name: str, runs_dir: Path) -> Recording:
    """Return the answers of a run, given by its folder or by its name beside other runs.

    Raises:
        ConfigError: there is no such run, or its journal cannot be read.
    """
    found = find_run(name, runs_dir if runs_dir != Path() else Path(DEFAULT_RUNS_DIR))
    try:
        records = list(whole_records(read_journal(found.journal)))
    except BusError as error:
        raise refusal(f"run {name!r} cannot answer: {error}") from error
    return Recording(record.body for record in records if isinstance(record.body, CandidateWritten | EditsProposed))


_SHOWN = 300


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that this release writes differently."""

    job_id: str
    role: Role
    changes: Changes


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A place where this release decides differently."""

    seq: int
    """Sequence number of the journal's record."""
    what: str


class Replayed(msgspec.Struct, kw_only=True):
    """Result of a replay."""

    rounds: int = 0
    questions: int = 0
    """Prompts that were rebuilt, and have an answer in the journal."""
    hits: int = 0
    misses: tuple[Miss, ...] = ()
    unanswered: int = 0
    """Questions without an answer in the journal: lost, or in flight when the run stopped."""
    answers: int = 0
    """Answers that were parsed again."""
    read_otherwise: tuple[Difference, ...] = ()
    """Answers that this release parses differently."""
    decisions: int = 0
    decided_otherwise: Difference | None = None
    """The first decision that differs."""
    hashes: int = 0
    """Number of state hashes in the journal."""
    hash_differs: Difference | None = None
    state_hash: str = ""
    """Hash of the state at the end."""

    @property
    def is_same(self) -> bool:
        """Return True if everything is as recorded."""
        return not (self.misses or self.read_otherwise or self.decided_otherwise or self.hash_differs)


def replay_run(records: Iterable[Record]) -> Replayed:
    """Replay a run's records."""
    kept = tuple(whole_records(records))
    replay = _Replay(Recording(_answers(kept)), frozenset(event.job_id for event in _answers(kept)))
    for record in kept:
        replay.take(record)
    return replay.result()


def _answers(records: Iterable[Record]) -> list[Answered]:
    """Return the models' answers. A record without a prompt was never a question, and is left out."""
    bodies = (record.body for record in records)
    return [body for body in bodies if isinstance(body, CandidateWritten | EditsProposed) and body.prompt]


class _Asked(msgspec.Struct, frozen=True):
    request: Request
    job: WriteCandidate | None
    """The coder's job; None: a question to the planner."""
    found: Answered | None


class _Replay:
    def __init__(self, recording: Recording, answered: frozenset[str]) -> None:
        self._recording = recording
        self._answered = answered
        self._state = SearchState()
        self._texts = Texts()
        self._waiting: dict[int, Event] = {}
        self._asked: dict[str, _Asked] = {}
        self._found = Replayed()

    def take(self, record: Record) -> None:
        """Take one record: an event waits for its decision."""
        body = record.body
        if isinstance(body, Decided):
            self._decide(record.seq, body)
        else:
            self._waiting[record.seq] = body

    def result(self) -> Replayed:
        """Return the result over all records."""
        found, questions = self._found, len(self._asked)
        found.rounds, found.state_hash = self._state.rounds, state_hash(self._state)
        found.questions, found.hits = questions, questions - len(found.misses)
        return found

    def _decide(self, seq: int, recorded: Decided) -> None:
        event = self._take_in(recorded.cause, seq)
        self._found.decisions += 1
        facts = recorded.facts
        if self._found.decided_otherwise is None:
            self._found.decided_otherwise = self._compare(seq, event, facts)
        for fact in facts:
            self._state = evolve(self._state, fact)
            if is_question(fact):
                self._ask(fact)
        if recorded.state_hash is not None:
            self._found.hashes += 1
            self._check_hash(seq, recorded.state_hash)

    def _take_in(self, cause: int, seq: int) -> Event:
        """Return the event that was decided on, with its texts and those of all events before it.

        A session that resumed the run had read all of them.
        """
        if cause not in self._waiting:
            raise ProtocolError(f"record {seq} decides on record {cause}, which is none that waits for a decision")
        known = seq if isinstance(self._waiting[cause], RunResumed) else cause
        for at in [at for at in self._waiting if at <= known]:
            self._waiting[at] = self._read_anew(at, self._waiting[at])
            self._texts.take(self._waiting[at])
        event = self._waiting.pop(cause)
        if not isinstance(event, RunResumed) and not self._state.finished:
            self._waiting = {at: waiting for at, waiting in self._waiting.items() if at > cause}
        return event

    def _read_anew(self, seq: int, event: Event) -> Event:
        asked = self._asked.get(event.job_id) if isinstance(event, CandidateWritten | EditsProposed) else None
        if asked is None or not isinstance(event, CandidateWritten | EditsProposed):
            return event
        read = _read(asked, event)
        self._found.answers += 1
        if _meaning(read) != _meaning(event):
            what = f"answer {event.job_id}: {_said(event)}, now {_said(read)}"
            self._found.read_otherwise += (Difference(seq=seq, what=what),)
        return read

    def _ask(self, fact: WriteRequested | PlanRequested) -> None:
        if fact.job_id not in self._answered:
            self._found.unanswered += 1
            return
        texts, asked_job = self._texts, None
        if isinstance(fact, PlanRequested):
            description = texts.started.description
            request = plan_request(self._state, fact, description, programs=texts.find, profiles=texts.profile)
        else:
            job = job_for(self._state, texts, fact)
            if not isinstance(job, WriteCandidate):
                raise ProtocolError(f"{fact.job_id} is no job for a coder")
            request, asked_job = request_for(job), job
        found = self._recording.find(request)
        self._asked[fact.job_id] = _Asked(request, asked_job, found)
        if found is None:
            changes = self._recording.changes(request)
            self._found.misses += (Miss(job_id=fact.job_id, role=request.role, changes=changes),)

    def _compare(self, seq: int, event: Event, recorded: tuple[Fact, ...]) -> Difference | None:
        try:
            facts = decide(self._state, event)
        except ProtocolError as error:
            return Difference(seq=seq, what=f"it makes no sense now: {error}")
        for number, (was, now) in enumerate(zip(recorded, facts, strict=False)):
            if was != now:
                return Difference(seq=seq, what=f"fact {number + 1} was {_shown(was)}, now {_shown(now)}")
        if len(recorded) != len(facts):
            further = (recorded + facts)[len(recorded) :] if len(facts) > len(recorded) else recorded[len(facts) :]
            return Difference(
                seq=seq, what=f"{len(recorded)} facts were decided, now {len(facts)}: {_shown(further[0])}"
            )
        return None

    def _check_hash(self, seq: int, recorded: str) -> None:
        now = state_hash(self._state)
        if now != recorded and self._found.hash_differs is None:
            self._found.hash_differs = Difference(seq=seq, what=f"the state's hash was {recorded}, now {now}")


def _read(asked: _Asked, event: Answered) -> Answered:
    """Return the answer to a question as this release parses it; if the question is not found, the recorded answer."""
    found = asked.found or event
    if isinstance(found, CandidateWritten) and asked.job is not None:
        names: tuple[str, ...] = ("job_id", "branch_id", "candidate", "complaint", "notes", "declined")
        read: Answered = read_answer(asked.job, asked.request, answer_of(found))
    else:
        names = ("job_id", "script", "complaint", "notes", "unread")
        read = read_proposal(asked.request, answer_of(found))
    return msgspec.structs.replace(found, **{name: getattr(read, name) for name in names})


def _meaning(event: Answered) -> object:
    if isinstance(event, EditsProposed):
        return event.script, event.complaint, event.unread
    return event.candidate, event.complaint, event.declined


def _said(event: Answered) -> str:
    if event.complaint:
        return f"complaint {event.complaint[:_SHOWN]!r}"
    if isinstance(event, EditsProposed):
        return f"{len(event.script.edits) if event.script else 0} edits"
    return f"candidate {event.candidate.candidate_id}" if event.candidate else "declined"


def _shown(fact: Fact) -> str:
    text = repr(fact)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} …"
