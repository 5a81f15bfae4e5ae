"""Answers that are kept by key."""

from __future__ import annotations

import anyio
import pytest

from actors.llm.base import Answer
from actors.llm.served.app import Answers, Given
from messages.base import Usage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_time]

QUESTION = b"how fast?"


def answer(text: str) -> Answer:
    return Answer(text=text, model="m", usage=Usage(), latency_s=0.0)


async def given(answers: Answers, key: str, text: str) -> Given:
    async def generate() -> Answer:
        await anyio.sleep(1)
        return answer(text)

    return await answers.give(key, QUESTION, generate)


async def test_without_a_key_every_request_is_answered_by_itself() -> None:
    answers = Answers()
    said = [await given(answers, "", text) for text in ("a", "b")]
    assert [(one.answer.text, one.is_replay) for one in said] == [("a", False), ("b", False)]


async def test_what_is_kept_is_bounded_and_what_was_asked_for_last_stays() -> None:
    answers = Answers(limit_bytes=30_000)
    for key in ("a", "b"):
        await given(answers, key, 10_000 * key)
    assert (await given(answers, "a", "new")).is_replay
    await given(answers, "c", 10_000 * "c")
    assert (await given(answers, "a", "new")).is_replay
    again = await given(answers, "b", "new")
    assert (again.answer.text, again.is_replay) == ("new", False)


async def test_where_a_generation_was_cut_short_the_request_that_waited_for_it_generates() -> None:
    answers = Answers()
    said: list[Given] = []

    async def second() -> None:
        said.append(await given(answers, "a", "second"))

    async with anyio.create_task_group() as tasks, anyio.create_task_group() as first:
        first.start_soon(given, answers, "a", "first")
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(second)
        await anyio.sleep(0.5)
        first.cancel_scope.cancel()
    assert [(one.answer.text, one.is_replay) for one in said] == [("second", False)]


async def test_a_failed_generation_is_not_kept() -> None:
    answers = Answers()

    async def fail() -> Answer:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await answers.give("a", QUESTION, fail)
    assert (await given(answers, "a", "text")).answer.text == "text"
