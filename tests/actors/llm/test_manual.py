from __future__ import annotations

from pathlib import Path

import anyio
import msgspec
import pytest

from actors.llm.base import Answer
from actors.llm.manual import ManualModel
from messages.base import ModelError
from tests.contracts.models import QUESTION, ModelContract

pytestmark = pytest.mark.anyio

POLL_S = 0.01


class TestContract(ModelContract):
    @pytest.fixture
    def model(self, tmp_path: Path) -> ManualModel:
        """The answer is there before the question: questions are numbered in order."""
        folder = tmp_path / "prompts"
        folder.mkdir()
        (folder / "001-planner.answer.md").write_text("Yes.")
        return ManualModel(folder, poll_s=POLL_S)


async def prompt_of(model: ManualModel) -> Path:
    """Return the file that the model waits for an answer to."""
    with anyio.fail_after(10):
        while not model.waiting:  # noqa: ASYNC110 - written by a thread
            await anyio.sleep(POLL_S)
    (prompt,) = model.waiting
    return prompt


async def test_a_prompt_is_a_file_that_says_where_the_answer_goes(tmp_path: Path) -> None:
    model = ManualModel(tmp_path / "prompts", poll_s=POLL_S)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await model.complete(QUESTION))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        prompt = await prompt_of(model)
        assert prompt == tmp_path / "prompts" / "001-planner.md"
        text = await anyio.Path(prompt).read_text()
        assert text.splitlines()[0] == "<!-- ksearch question r1-p1: write the answer to 001-planner.answer.md -->"
        assert text.endswith("\n\nRules.\n\nA task.\n\nA question.\n")
        fresh = anyio.Path(prompt.with_name("draft"))
        await fresh.write_text("Yes, of course.")
        await fresh.rename(prompt.with_name("001-planner.answer.md"))
    assert answers[0].text == "Yes, of course."
    assert model.waiting == []


async def test_notes_beside_the_prompts_are_none_and_a_prompt_with_any_bytes_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "2nd-thoughts.md").write_bytes(b"\xff")
    question = msgspec.structs.replace(QUESTION, parts=("A line.\r\nAnother.\r",))
    for _ in range(2):
        model = ManualModel(tmp_path, poll_s=POLL_S)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(model.complete, question)
            assert (await prompt_of(model)).name == "001-planner.md"
            tasks.cancel_scope.cancel()


async def test_an_answer_that_still_grows_is_waited_for(tmp_path: Path) -> None:
    model = ManualModel(tmp_path, poll_s=0.1)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await model.complete(QUESTION))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await prompt_of(model)
        path = anyio.Path(tmp_path / "001-planner.answer.md")
        await path.touch()
        text = ""
        for number in range(10):
            text += f"line {number}\n"
            await path.write_text(text)
            await anyio.sleep(0.02)
    assert answers[0].text.startswith("line 0\n")
    assert answers[0].text == text


async def test_after_a_stop_the_same_question_waits_for_the_same_file(tmp_path: Path) -> None:
    first = ManualModel(tmp_path, poll_s=POLL_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.complete, QUESTION)
        prompt = await prompt_of(first)
        tasks.cancel_scope.cancel()
    second = ManualModel(tmp_path, poll_s=POLL_S)
    other = msgspec.structs.replace(QUESTION, request_id="r1-w1", role="coder")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.complete, other)
        assert (await prompt_of(second)).name == "002-coder.md"
        tasks.cancel_scope.cancel()
    third = ManualModel(tmp_path, poll_s=POLL_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(third.complete, QUESTION)
        assert await prompt_of(third) == prompt
        tasks.cancel_scope.cancel()


async def test_an_answer_that_came_while_nobody_waited_is_taken_at_once(tmp_path: Path) -> None:
    first = ManualModel(tmp_path, poll_s=POLL_S)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first.complete, QUESTION)
        await prompt_of(first)
        tasks.cancel_scope.cancel()
    await anyio.Path(tmp_path / "001-planner.answer.md").write_text("Late, but yes.")
    with anyio.fail_after(10):
        assert (await ManualModel(tmp_path, poll_s=POLL_S).complete(QUESTION)).text == "Late, but yes."


async def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    await anyio.Path(tmp_path / "prompts").write_text("a file")
    with pytest.raises(ModelError, match="prompts' cannot be used") as caught:
        await ManualModel(tmp_path / "prompts").complete(QUESTION)
    assert caught.value.permanent
