"""Drafts of tasks by a model: read strictly, asked for again with complaints, and not searched on before a yes."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from actors.coder.parse import UnusableError
from actors.llm.chat import ChatModel
from evaluators.tasks import load_task
from evaluators.tasks.own.drafts import accept_draft, write_draft
from ksearch_async.evaluation.drafts import TRIES, draft_task, read_answer
from ksearch_async.evaluation.tasks import check_accepted
from ksearch_async.settings.run_config import ModelSettings
from messages.base import ConfigError, ModelError
from tests.ksearch_async.answering import answering
from tests.ksearch_async.drafts import DOCUMENT, NAME, REFERENCE, answer

pytestmark = pytest.mark.anyio
WANTED = "batched matmul A x B, batch 2, bf16, bias and GELU"
HOSTILE = REFERENCE.replace("    wide", '    __import__("os").system("touch was-run")\n    wide')


@pytest.fixture(scope="module", autouse=True)
def packages_are_loaded() -> None:
    """Make one client without an event loop: a process's first one imports packages, which reads files."""
    ChatModel(model="none")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in os.environ if one.startswith("KSEARCH_") or one.endswith("_API_KEY")]:
        monkeypatch.delenv(name)


def settings(url: str) -> ModelSettings:
    return ModelSettings(name="drafter", base_url=url, timeout_s=30)


async def test_a_good_answer_is_a_draft_with_its_origin() -> None:
    with answering(answer()) as served:
        drafted = await draft_task(settings(served.url), WANTED)
    draft = drafted.document.draft
    assert draft is not None
    assert (draft.model, draft.text, draft.accepted) == ("drafter", WANTED, False)
    assert (drafted.document.name, drafted.reference, drafted.questions) == (NAME, REFERENCE, 1)
    assert drafted.completion_tokens > 0
    (asked,) = served.asked
    assert WANTED in asked.prompt
    assert "[hidden_workloads]" in asked.system


async def test_an_answer_that_cannot_be_used_is_asked_for_again_with_what_is_wrong() -> None:
    told: list[str] = []
    with answering("I would rather not.", answer(reference=HOSTILE), answer()) as served:
        drafted = await draft_task(settings(served.url), WANTED, name="mine", tell=told.append)
    assert drafted.questions == len(served.asked) == 3
    assert drafted.document.name == "mine"
    assert "0 fenced blocks of toml" in told[0]
    assert "'__import__'" in told[1]
    assert told[1] in served.asked[2].prompt
    assert HOSTILE in served.asked[2].prompt
    assert "I would rather not." in served.asked[1].prompt


async def test_it_is_asked_so_often_and_no_more() -> None:
    complaint = rf"no task in {TRIES} answers; the last one: there are 0 fenced"
    with answering("no") as served, pytest.raises(ModelError, match=complaint):
        await draft_task(settings(served.url), WANTED)
    assert len(served.asked) == TRIES


async def test_the_built_in_rules_cannot_draft() -> None:
    with pytest.raises(ConfigError, match="the built-in rules cannot draft") as raised:
        await draft_task(ModelSettings(), WANTED)
    assert "--model NAME" in raised.value.__notes__[0]


@pytest.mark.parametrize(("text", "complaint"), [(" \n", "--from is empty"), ("x" * 4001, "4001 characters")])
async def test_a_sentence_that_is_none_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await draft_task(settings("http://127.0.0.1:9/v1"), text)


def changed(old: str, new: str) -> str:
    assert old in DOCUMENT
    return DOCUMENT.replace(old, new)


UNUSABLE = {
    "two documents": (f"```toml\n{DOCUMENT}```\n{answer()}", "2 fenced blocks of toml"),
    "another block": (f"{answer()}\n```sh\nls\n```\n", "3 fenced blocks; give one of toml"),
    "no reference": (f"```toml\n{DOCUMENT}```\n", "0 fenced blocks of python"),
    "no TOML": (answer("name = \n"), "'task.toml' is no TOML"),
    "a lax tolerance": (answer(f'tolerance = "kernelbench"\n{DOCUMENT}'), "tolerance: a person says this"),
    "library calls": (answer(f'{DOCUMENT}\n[rules]\nlibrary_calls = "allow"\n'), "rules: a person says this"),
    "its own yes": (
        answer(f'{DOCUMENT}\n[draft]\nmodel = "m"\ntext = "t"\naccepted = true\n'),
        "draft: a person says this",
    ),
    "inputs that code makes": (
        answer(DOCUMENT[: DOCUMENT.index("[[inputs]]")] + 'inputs = "reference.py:make"\n[workloads]\na = {n = 1}\n'),
        "inputs: 'reference.py:make'; list them",
    ),
    "a file elsewhere": (answer(changed("reference.py:", "../other.py:")), 'write "reference.py:FUNCTION"'),
    "a name that is a path": (answer(changed('name = "bmm_bias_gelu"', 'name = "../x"')), "'../x' is no name"),
    "an unknown dtype": (
        answer(changed('dtype = "bfloat16"', 'dtype = "bf16"')),
        "task.toml', input 'a': unknown dtype",
    ),
    "an idle dimension": (answer(changed("inner = 32,", "inner = 32, k = 1,")), "workload 'odd'"),
    "no such function": (
        answer(changed("reference.py:bmm", "reference.py:cmm")),
        "defines no function 'cmm_bias_gelu'",
    ),
    "other arguments": (
        answer(reference=REFERENCE.replace("bias: torch.Tensor", "bias: torch.Tensor, c: int")),
        "is given (a, b, bias)",
    ),
    "an import": (answer(reference=f"import os\n{REFERENCE}"), "'os' cannot be imported"),
    "a call of the system": (answer(reference=HOSTILE), "'__import__' is not defined"),
}


@pytest.mark.parametrize("what", UNUSABLE)
def test_what_is_wrong_with_an_answer_is_said(what: str) -> None:
    text, complaint = UNUSABLE[what]
    with pytest.raises((UnusableError, ConfigError)) as raised:
        read_answer(text)
    assert complaint in str(raised.value)
    assert "/tmp" not in str(raised.value)  # noqa: S108 - where it was tried is nobody's business


def test_an_answer_that_was_cut_off_is_no_draft() -> None:
    with pytest.raises(UnusableError, match="never closed"):
        read_answer(answer()[:-5], is_complete=False)


async def test_a_draft_waits_for_a_yes_and_stays_the_same_task(tmp_path: Path) -> None:
    with answering(answer()) as served:
        drafted = await draft_task(settings(served.url), WANTED)
    folder = await anyio.to_thread.run_sync(write_draft, tmp_path, drafted.document, drafted.reference)
    await anyio.to_thread.run_sync(_accepted_at_last, folder)


def _accepted_at_last(folder: Path) -> None:
    before = load_task(str(folder))
    for name in (str(folder), f"own:{folder}", f"{folder}:small", str(folder / "task.toml")):
        with pytest.raises(ConfigError, match="drafted by drafter, and is not accepted yet") as raised:
            check_accepted(name)
        assert raised.value.__notes__ == [
            f"read its reference and its workloads, then: ksearch check-task {name} --accept"
        ]
    document = folder / "task.toml"
    text = document.read_text()
    document.write_text(text.replace("accepted = false\n", ""))
    with pytest.raises(ConfigError, match="write 'accepted = true' there"):
        accept_draft(str(folder))
    document.write_text(f"# mine now\n{text}# accepted = false\n")
    accept_draft(str(folder))
    check_accepted(str(folder))
    assert document.read_text().startswith("# mine now\n")
    assert document.read_text().endswith("# accepted = false\n")
    assert load_task(str(folder)).task_id == before.task_id
    with pytest.raises(ConfigError, match="no draft that waits"):
        accept_draft(str(folder))
    check_accepted("softmax_rows")
    check_accepted("no_such_task")
