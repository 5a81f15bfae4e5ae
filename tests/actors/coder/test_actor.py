from __future__ import annotations

from collections.abc import Callable, Iterator

import anyio
import pytest
from msgspec.structs import replace

from actors.bus.base import QueueSpec
from actors.bus.memory import MemoryBus
from actors.bus.stream import MemoryStore
from actors.coder.actor import serve_writes, write_candidate
from actors.coder.prompts import request_for
from actors.llm.base import Answer, Ending, Request, ScriptedModel, estimated_usage
from actors.planner.jobs import whole_written
from actors.worker.taking import FixedQueues
from messages.base import ModelError
from messages.codec import Body, decode_body, encode
from messages.events import CandidateWritten, JobLost
from messages.subjects import write_jobs
from messages.tasks import Candidate, SourceFile
from tests.actors.coder.jobs import APPLY, TASK, job

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

PROGRAM = '```cpp path=k.cpp\nextern "C" int ksearch_run();\n```'
QUEUE = write_jobs("r1")


async def answered(answers: Callable[[Request], str | Exception], *, jobs: int = 1, slots: int = 1) -> list[Body]:
    """Have jobs done by a coder whose model takes a second; return the events and stop."""
    bus = MemoryBus(lambda _: MemoryStore())
    await bus.open_stream("r1")
    await bus.declare_queue(QueueSpec(name=QUEUE, run_id="r1"))
    for number in range(jobs):
        await bus.submit(QUEUE, encode(job(job_id=f"r1-w{number}")), msg_id=f"r1-w{number}")
    found: list[Body] = []
    async with anyio.create_task_group() as tasks:
        await tasks.start(_serve, bus, ScriptedModel(answers, latency_s=1.0), slots)
        events = bus.events("r1")
        async for posted in events:
            found.append(decode_body(posted.payload))
            if len(found) == jobs:
                break
        await events.aclose()
        tasks.cancel_scope.cancel()
    return found


async def _serve(bus: MemoryBus, model: ScriptedModel, slots: int, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    await serve_writes(bus, model, queues=FixedQueues(QUEUE), slots=slots, task_status=task_status)


async def test_an_answer_becomes_an_event_with_all_that_was_said_and_what_it_cost() -> None:
    (event,) = await answered(lambda _: PROGRAM)
    assert isinstance(event, CandidateWritten)
    assert event.candidate is not None
    assert event.candidate.files[0].path == "k.cpp"
    assert event.complaint == ""
    assert event.answer == PROGRAM
    assert event.prompt.startswith("You write fast, correct programs.")
    assert "# Action n3" in event.prompt
    assert (event.model, event.usage.calls, event.latency_s) == ("scripted", 1, 1.0)


async def test_the_task_and_code_that_are_in_the_runs_events_already_are_quoted() -> None:
    code, task = "float x = 1;\n" * 30, replace(TASK, prompt="Multiply x by two.\n" * 20)
    base = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text=code),))
    asked = job(base=base, base_outcome="measured: 2x", task=task)
    answer = f"```cpp path=kernel.cpp\n{code}int ksearch_run();\n```"
    event = await write_candidate(ScriptedModel(lambda _: answer), asked)
    assert event.candidate is not None
    assert len(event.answer) < 60
    assert [quote.source for quote in event.prompt_quotes] == ["task", base.candidate_id]
    assert [quote.source for quote in event.answer_quotes] == [event.candidate.candidate_id]
    texts = {"task": task.prompt, base.candidate_id: code, event.candidate.candidate_id: event.candidate.files[0].text}
    told = whole_written(event, lambda quote: texts[quote.source])
    request = request_for(asked)
    assert (told.prompt, told.answer) == (f"{request.system}\n\n{request.prompt}", answer)


async def test_the_jobs_id_is_the_requests_id() -> None:
    asked: list[str] = []

    def answer(request: Request) -> str:
        asked.append(request.request_id)
        return PROGRAM

    await answered(answer, jobs=3)
    assert asked == ["r1-w0", "r1-w1", "r1-w2"]


async def test_slots_ask_at_the_same_time() -> None:
    began = anyio.current_time()
    await answered(lambda _: PROGRAM, jobs=8, slots=4)
    assert anyio.current_time() - began == pytest.approx(2.0, abs=0.01)


async def test_an_answer_without_a_program_is_an_event_with_a_complaint() -> None:
    (event,) = await answered(lambda _: "I would rather not.")
    assert isinstance(event, CandidateWritten)
    assert event.candidate is None
    assert "I would rather not." in event.complaint


async def test_a_coder_may_see_nothing_further_only_with_a_correct_candidate_in_hand() -> None:
    model = ScriptedModel(lambda _: "Nothing further: it is bound by memory.", latency_s=1.0)
    improved = await write_candidate(model, job(mode="improve"))
    assert (improved.candidate, improved.declined, improved.complaint) == (None, "it is bound by memory.", "")
    applied = await write_candidate(model, job(mode="apply"))
    assert applied.declined == ""
    assert applied.complaint


async def test_a_model_that_fails_for_a_while_is_asked_again() -> None:
    answers: Iterator[str | Exception] = iter([ModelError("busy"), ModelError("busy"), PROGRAM])
    (event,) = await answered(lambda _: next(answers))
    assert isinstance(event, CandidateWritten)
    assert event.candidate is not None


async def test_a_model_that_fails_for_good_loses_the_job() -> None:
    (event,) = await answered(lambda _: ModelError("refused the key", permanent=True))
    assert event == JobLost(job_id="r1-w0", kind="write", error="refused the key", permanent=True)


class CutOffModel:
    """Answers half a program, as an endpoint does at its token limit."""

    async def complete(self, request: Request) -> Answer:
        text = PROGRAM[:-4]
        usage = estimated_usage(request, text)
        return Answer(text=text, model="m", usage=usage, latency_s=0.0, finish_reason="length")

    async def aclose(self) -> None:
        """Do nothing."""


async def test_an_answer_that_was_cut_off_says_so() -> None:
    event = await write_candidate(CutOffModel(), APPLY)
    assert "never closed" in event.complaint
    assert "token limit" in event.complaint


async def test_an_answer_of_search_replace_blocks_is_the_changed_code_and_says_what_had_to_be_put_right() -> None:
    base = Candidate(
        language="cpp",
        entry_point="ksearch_run",
        files=(SourceFile(path="k.cpp", text="int ksearch_run() {\n    return 0;\n}\n"),),
    )
    text = "Better.\n\n```cpp path=k.cpp\n<<<<<<< SEARCH\nreturn 0;\n=======\nreturn 1;\n>>>>>>> REPLACE\n```\n"
    model = ScriptedModel(lambda _: text, latency_s=1.0)
    event = await write_candidate(model, job(mode="improve", base=base, edit_format="search-replace"))
    assert event.candidate is not None
    assert event.candidate.files == (SourceFile(path="k.cpp", text="int ksearch_run() {\n    return 1;\n}\n"),)
    assert event.notes == ("search/replace block 1 (line 4 of the answer): matches a part of line 2",)
    assert event.answer == text


async def test_an_answer_of_blocks_is_read_to_its_end_since_nobody_knows_which_is_the_last() -> None:
    base = Candidate(
        language="cpp",
        entry_point="ksearch_run",
        files=(SourceFile(path="k.cpp", text="int ksearch_run() {\n    return 0;\n}\n"),),
    )
    endings: list[Ending] = []

    def answer(request: Request) -> str:
        assert request.ending is not None
        endings.append(request.ending())
        return PROGRAM

    await write_candidate(ScriptedModel(answer, latency_s=1.0), job(mode="improve", base=base))
    await write_candidate(ScriptedModel(answer, latency_s=1.0), job(mode="improve", base=base))
    blocks = "```cpp path=k.cpp\n<<<<<<< SEARCH\n    return 0;\n=======\n    return 1;\n>>>>>>> REPLACE\n```\n"
    assert not endings[0].take(blocks)
    assert endings[1].take(f"{PROGRAM}\n")
