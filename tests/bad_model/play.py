"""A run against a served offline model that fails and errs in every way, and what its journal shows of it."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import anyio
import httpx
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from actors.bus.journal import read_journal
from actors.coder.parse import declines
from actors.coder.prompts import system_rules
from actors.llm.answer_text import split_reasoning
from actors.llm.base import Request
from actors.llm.offline import OfflineModel
from actors.llm.offline.mistakes import MistakeKind, Mistakes
from actors.llm.served.app import FaultKind, Report
from actors.planner.jobs import whole_records
from evaluators.simulated import SIMULATED, SimulatedBuilder, SimulatedEvaluator, hashed_outcome, hashed_verdict
from ksearch_async.runs.folder import RunFolder
from ksearch_async.runs.resume import Session, Tools, lead_session
from ksearch_async.runs.run import Run
from ksearch_async.settings.models import lineup_of, open_model
from ksearch_async.settings.run_config import ModelSettings, RunConfig, WorkerSettings, save_config
from messages.codec import Record
from messages.events import CandidateWritten, EditsProposed, JobLost, RunStarted
from messages.facts import Decided
from messages.settings import Budget, SearchSettings
from messages.tasks import TaskSpec
from tests.actors.llm.offline.prompts import description
from tests.bad_model.checks import problems_of_run, reasons_of, waits

RUN_ID = "bad-model"
MODEL = "offline-rules"
FAULTS: Final[tuple[FaultKind, ...]] = ("rate_limit", "server_error", "hang", "cut")
TOLD: Final[Mapping[FaultKind, str]] = {
    "rate_limit": "rate_limited",
    "server_error": "server_error",
    "hang": "timed_out",
    "cut": "broken_off",
}
"""The gateway's word for what the server did."""
MISTAKES: Final[tuple[MistakeKind, ...]] = (
    "prose",
    "malformed_json",
    "wrong_schema",
    "dead_node",
    "machine_field",
    "empty",
    "rambling",
)
_RETRY_AFTER_S = 0.05


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What is played."""

    dialect: Literal["chat", "responses"] = "chat"
    rounds: int = 200
    branches: int = 8
    rate: float = 0.1
    """Share of requests with each fault, and of the answers to a role with each mistake."""
    latency_s: float = 0.6
    """Of an answer of the model."""
    evaluation_s: float = 0.1
    timeout_s: float = 3.0
    """Of a call with all its tries: what hangs ends here."""
    seed: int = 0
    limit_s: float = 540.0
    mistakes: tuple[MistakeKind, ...] = MISTAKES
    faults: bool = True
    """Requests fail, too."""
    most_lost_to_form: float = 1.0
    """Share of the answers of which nothing may be used, or only a part."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one kind of fault or mistake."""

    kind: str
    made: int
    """By the server: tries that failed, answers that it spoiled."""
    journalled: int
    """Failed tries, or spoiled answers, that the journal tells of."""
    refused: int = 0
    """Of these answers: not used, or in part, and why is said."""
    reasons: tuple[str, ...] = ()
    """Beginnings of the most frequent ones."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended."""

    dialect: str
    wall_s: float
    rounds: int
    stopped_by: str
    problems: list[str]
    rows: list[Row]
    lost_jobs: int
    lost_to_form: int
    """Answers with a complaint, and scripts with edits that cannot be read; not those that decline to go on."""
    lost_to_form_share: float
    planner_calls: int
    coder_calls: int
    refused_scripts: int
    """Whole scripts, answers that are none included."""
    nodes: int
    longest_wait_s: float
    """Between an event's arrival and its decision while the planner's model was being asked."""
    waits: int
    """Such events."""
    longest_prompt_bytes: int
    journal_bytes: int
    requests: int
    paid: int
    ids_paid_twice: int


async def play(told: Play, folder: Path) -> Outcome:
    """Play it, in an empty folder; the model is served by a process of its own.

    Raises:
        TimeoutError: the run did not end in time.
    """
    began = anyio.current_time()
    async with _serve_model(told, folder) as (base_url, report):
        session = _session(told, folder, base_url)
        async with open_model(session.config.model, {}, seed=told.seed) as model:
            evaluator = SimulatedEvaluator(hashed_verdict, wall_s=told.evaluation_s)
            tools = Tools(model=model, builder=SimulatedBuilder(hashed_outcome), evaluator=evaluator)
            with anyio.fail_after(told.limit_s):
                await lead_session(session, tools, tell=session.chronicle.fold)
        counts = await report()
    return await outcome_of(told, session, counts, anyio.current_time() - began)


def _session(told: Play, folder: Path, base_url: str) -> Session:
    model = ModelSettings(
        kind=told.dialect, name=MODEL, base_url=base_url, timeout_s=told.timeout_s, concurrency=told.branches + 1
    )
    settings = SearchSettings(branches=told.branches, stagnation_window=3, budget=Budget(max_rounds=told.rounds))
    workers = WorkerSettings(builders=told.branches, evaluators=told.branches)
    task = description()
    config = RunConfig(
        task="norm.py",
        runs_dir=str(folder),
        sync="never",
        search=settings,
        model=model,
        workers=workers,
        seed=told.seed,
    )
    run = RunFolder(folder / RUN_ID)
    run.path.mkdir()
    save_config(config, run.config)
    started = RunStarted(
        run_id=RUN_ID,
        task=TaskSpec(name="norm", source="kernelbench", text="# none"),
        description=task,
        target=SIMULATED,
        settings=settings,
        seed=told.seed,
        lineup=lineup_of(config, {}),
    )
    return Session(folder=run, config=config, started=started, chronicle=Run(), opening=started)


async def outcome_of(told: Play, session: Session, report: Report, wall_s: float) -> Outcome:
    """Look at what is left of a run that is over."""
    records = list(whole_records(read_journal(session.folder.journal)))
    facts = {record.body.cause: record.body.facts for record in records if isinstance(record.body, Decided)}
    answers = [record.body for record in records if isinstance(record.body, CandidateWritten | EditsProposed)]
    met = waits(records)
    state, finished = session.chronicle.state, session.chronicle.finished
    rows = [*(_fault_rows(records, report) if told.faults else ()), *await _mistake_rows(told, records, report)]
    problems = problems_of_run(records, rounds=told.rounds) + _unaccounted(told, rows)
    lost = sum(_is_lost_to_form(answer) for answer in answers)
    share = lost / max(1, len(answers))
    if share >= told.most_lost_to_form:
        problems.append(f"{lost} of {len(answers)} answers were lost to form")
    problems += [f"question {name} was paid for twice" for name in report.ids_paid_twice]
    return Outcome(
        dialect=told.dialect,
        wall_s=round(wall_s, 1),
        rounds=state.rounds,
        stopped_by=finished.stopped_by if finished is not None else "",
        problems=problems,
        rows=rows,
        lost_jobs=sum(isinstance(record.body, JobLost) for record in records),
        lost_to_form=lost,
        lost_to_form_share=round(share, 4),
        planner_calls=sum(isinstance(answer, EditsProposed) for answer in answers),
        coder_calls=sum(isinstance(answer, CandidateWritten) for answer in answers),
        refused_scripts=sum(
            isinstance(record.body, EditsProposed) and bool(reasons_of(record, facts.get(record.seq, ())))
            for record in records
        ),
        nodes=len(state.nodes),
        longest_wait_s=round(max((wait.waited_s for wait in met), default=0.0), 3),
        waits=len(met),
        longest_prompt_bytes=max((len(answer.prompt.encode()) for answer in answers), default=0),
        journal_bytes=session.folder.journal.stat().st_size,
        requests=report.requests,
        paid=report.paid,
        ids_paid_twice=len(report.ids_paid_twice),
    )


def _is_lost_to_form(answer: CandidateWritten | EditsProposed) -> bool:
    """Say whether an answer could not be used, or not in all its parts, though it does not decline to give one."""
    refused = bool(answer.complaint or (isinstance(answer, EditsProposed) and answer.unread))
    return refused and not declines(split_reasoning(answer.answer).answer)


def _fault_rows(records: Sequence[Record], report: Report) -> list[Row]:
    bodies = [record.body for record in records]
    faults = [
        fault
        for body in bodies
        if isinstance(body, CandidateWritten | EditsProposed | JobLost)
        for fault in body.faults
    ]
    return [
        Row(
            kind=kind,
            made=report.faults.get(kind, 0),
            journalled=sum(fault.kind == TOLD[kind] for fault in faults),
            reasons=_most_frequent(fault.detail or fault.words for fault in faults if fault.kind == TOLD[kind]),
        )
        for kind in FAULTS
    ]


async def _mistake_rows(told: Play, records: Sequence[Record], report: Report) -> list[Row]:
    """Have the built-in rules answer each journalled prompt again: they make the same mistake."""
    mistakes = Mistakes(told.rate, seed=told.seed, kinds=told.mistakes, of_each=True)
    facts = {record.body.cause: record.body.facts for record in records if isinstance(record.body, Decided)}
    journalled: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    reasons: dict[str, list[str]] = {kind: [] for kind in told.mistakes}
    for record in records:
        if not isinstance(record.body, CandidateWritten | EditsProposed):
            continue
        model = OfflineModel(seed=told.seed, mistakes=mistakes)
        answer = await model.complete(_asked(record.body))
        for kind in model.mistakes_made:
            journalled[kind] += 1
            said = reasons_of(record, facts.get(record.seq, ()))
            refused[kind] += bool(said)
            reasons[kind] += said[:1]
        assert model.mistakes_made or answer.text.startswith(record.body.answer), f"record {record.seq}"
    return [
        Row(
            kind=kind,
            made=report.mistakes.get(kind, 0),
            journalled=journalled[kind],
            refused=refused[kind],
            reasons=_most_frequent(reasons[kind]),
        )
        for kind in told.mistakes
    ]


def _asked(answer: CandidateWritten | EditsProposed) -> Request:
    if isinstance(answer, EditsProposed):
        return Request(request_id="", role="planner", system="", parts=(answer.prompt,))
    prompt = answer.prompt.removeprefix(f"{system_rules('cpp')}\n\n")
    return Request(request_id="", role="coder", system="", parts=(prompt,))


def _unaccounted(told: Play, rows: Sequence[Row]) -> list[str]:
    """Find kinds of which the journal tells less than the server did; the run's end cuts some calls off."""
    cut_off = told.branches + 1
    missing = sum(max(0, row.made - row.journalled) for row in rows)
    never = [f"no {row.kind} was made" for row in rows if not row.made and told.rounds >= 200]
    if missing <= 2 * cut_off:
        return never
    said = ", ".join(f"{row.kind} {row.journalled} of {row.made}" for row in rows if row.journalled < row.made)
    return [*never, f"the journal does not tell of {missing} faults and mistakes: {said}"]


def _most_frequent(said: Iterable[str]) -> tuple[str, ...]:
    counts = Counter(" ".join(text.split())[:90] for text in said)
    return tuple(text for text, _ in counts.most_common(3))


@asynccontextmanager
async def _serve_model(told: Play, folder: Path) -> AsyncIterator[tuple[str, Callable[[], Awaitable[Report]]]]:
    """Serve the offline model; yields its address, and what asks for its report."""
    rate = f"{told.rate:g}"
    options = ["--port", "0", "--json", "--seed", str(told.seed), "--latency", f"{told.latency_s:g}"]
    for kind in FAULTS if told.faults else ():
        options += [f"--{kind.replace('_', '-')}", rate]
    options += ["--retry-after", f"{_RETRY_AFTER_S:g}", "--each-mistake", rate, "--mistake-kinds", *told.mistakes]
    with (folder / "model.log").open("wb") as log:
        command = (sys.executable, "-m", "ksearch_async", "offline-model", *options)
        async with await anyio.open_process(command, stderr=log) as process:
            assert process.stdout is not None
            line = await BufferedByteReceiveStream(process.stdout).receive_until(b"\n", 1 << 16)
            base_url = str(msgspec.json.decode(line)["base_url"])

            async def report() -> Report:
                async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:
                    answer = await client.get(f"{base_url.removesuffix('/v1')}/stats")
                return msgspec.json.decode(answer.content, type=Report)

            try:
                yield base_url, report
            finally:
                process.send_signal(signal.SIGTERM)
                with anyio.CancelScope(shield=True):
                    await process.wait()
