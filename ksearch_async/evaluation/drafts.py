"""Has a model draft a task from a sentence: asks, reads the answer strictly, and asks again with the errors.

Nothing of an answer is run here. A draft can be searched on only after a person has accepted it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from uuid import uuid4

import msgspec

from actors.coder.parse import Block, UnusableError, read_blocks
from actors.llm.answer_text import split_reasoning
from actors.llm.base import Model, Request
from evaluators.tasks.own.document import DTYPES, REFERENCE, Document, Draft
from evaluators.tasks.own.drafts import MODULES, read_draft
from evaluators.tasks.own.problem_text import KINDS
from ksearch_async.errors import refusal
from ksearch_async.settings.models import dialect_of, model_name, open_model
from ksearch_async.settings.run_config import ModelSettings
from messages.base import ConfigError, ModelError

TRIES = 3
"""Most questions: the first, and two with the errors of the answer before."""
_MOST_TEXT = 4000
_SHOWN = 20_000
"""Most characters of an unusable answer that are shown to the model again."""
_TOML, _PYTHON = ("toml",), ("python", "py", "python3")

_RULES = f"""\
You draft tasks for a search that looks for fast GPU kernels. From a sentence you write the reference, a plain function
in torch that says what is right and is not fast, and the document that says what it is called with.

Answer with exactly two fenced blocks and nothing else in fences. The first, whose fence says `toml`, is the document:

```toml
name = "row_norm"
description = "RMSNorm over the last dimension, then SiLU."
reference = "{REFERENCE}:row_norm"

[[inputs]]
name = "x"
shape = ["rows", "columns"]
dtype = "bfloat16"
distribution = "normal"

[[inputs]]
name = "eps"
value = 1e-6

[workloads]
small = {{rows = 256, columns = 1024}}
odd = {{rows = 253, columns = 1021}}

[hidden_workloads]
held_out = {{rows = 131, columns = 771}}
```

The second, whose fence says `python`, is {REFERENCE}:

```python
import torch


def row_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return torch.nn.functional.silu(normed).to(x.dtype)
```

The document
- `[[inputs]]` are the function's arguments, under their names and in their order. Each has a `shape` (a tensor) or a
  `value` (a number, true, false, a text, or a dimension's name: the same in every call). Weights are inputs too.
- `shape` is a list of numbers, dimensions of the workloads, and expressions over them ("2 * rows", "columns // 4").
- `dtype` is one of {", ".join(DTYPES)}.
- `distribution` is one of {", ".join(KINDS)}; normal(MEAN, DEVIATION), uniform(LOW, HIGH), integers(LOW, HIGH),
  bernoulli(P) take numbers or expressions. Integers and booleans need one; choose what real data looks like, and scale
  weights so that outputs are of about unit size.
- `as_drawn = true` for an input that must be tested on such values only, as probabilities must.
- `[workloads]` are two or three: the sizes that the sentence names, else sizes as they occur in practice, one of them
  with odd sizes where nothing speaks against it. No tensor has more than 2^25 elements. All give the same dimensions,
  and every dimension is used by an input. `[hidden_workloads]` has one of other sizes.
- Other keys are for people: leave them out.

The function
- Deterministic, on whatever device its inputs are, without changing them; it returns a tensor or a tuple of tensors.
- What is in half precision is computed in float32, and rounded at the end.
- Every input must matter to the outputs, and outputs must not be about the same for all inputs.
- At the top of the file stand imports ({", ".join(MODULES)}), constants and functions only. No classes, decorators,
  lambdas, generators, `while`, `with`, `try`, files, printing, or names that begin with underscores."""


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """A draft that was read without errors."""

    document: Document
    reference: str
    """Text of `reference.py`."""
    questions: int
    """Number of questions to the model."""
    prompt_tokens: int
    completion_tokens: int


async def draft_task(
    settings: ModelSettings, text: str, *, name: str = "", tell: Callable[[str], object] = lambda _: None
) -> Drafted:
    """Have a model draft a task.

    Args:
        settings: the model; it must be behind an endpoint.
        text: description of the task, in one or a few sentences.
        name: name of the task; empty: the model names it.
        tell: called with the errors of an answer when it is asked for again.

    Raises:
        ConfigError: there is no such model, or the description is empty.
        ModelError: the endpoint failed, or no answer could be used.
    """
    said = text.encode("utf-8", "replace").decode().strip()
    if not said:
        raise refusal("--from is empty", 'say what is to be computed: --from "softmax over rows of 4096, bf16"')
    if len(said) > _MOST_TEXT:
        raise refusal(f"--from has {len(said)} characters, and {_MOST_TEXT} are the most", "say it in fewer words")
    require_endpoint(settings)
    async with open_model(settings, os.environ, seed=0) as model:
        drafted = await _asked(model, said, name, tell)
    draft = Draft(model=model_name(settings, os.environ), text=said)
    return msgspec.structs.replace(drafted, document=msgspec.structs.replace(drafted.document, draft=draft))


def require_endpoint(settings: ModelSettings) -> None:
    """Check that a model can draft a task.

    Raises:
        ConfigError: it is not behind an endpoint.
    """
    if dialect_of(settings, os.environ) not in ("chat", "responses"):
        raise refusal(
            "a draft needs a language model: the built-in rules cannot draft tasks, and recorded runs have none",
            "name a model: --model NAME (with --base-url for an endpoint of your own); or leave --from out, "
            "and ksearch new-task NAME writes a task to edit",
        )


async def _asked(model: Model, text: str, name: str, tell: Callable[[str], object]) -> Drafted:
    wanted = f"# What is wanted\n\n{text}" + (f"\n\nThe task's name is {name!r}." if name else "")
    more: tuple[str, ...] = ()
    prompt_tokens = completion_tokens = 0
    complaint = ""
    asked = uuid4().hex
    for number in range(TRIES):
        request = Request(request_id=f"draft-{asked}-{number}", role="planner", system=_RULES, parts=(wanted, *more))
        answer = await model.complete(request)
        prompt_tokens += answer.usage.prompt_tokens
        completion_tokens += answer.usage.completion_tokens
        try:
            document, reference = read_answer(answer.text, name, is_complete=answer.finish_reason == "stop")
        except (UnusableError, ConfigError) as error:
            complaint = str(error)
            if number + 1 < TRIES:
                tell(complaint)
            more = (
                f"# Your last answer\n\n{answer.text[:_SHOWN]}",
                f"# What is wrong with it\n\n{complaint}\n\nAnswer again with both blocks, whole.",
            )
            continue
        return Drafted(
            document=document,
            reference=reference,
            questions=number + 1,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
        )
    first = complaint.splitlines()[0]
    raise ModelError(f"the model drafted no task in {TRIES} answers; the last one: {first}", permanent=True)


def read_answer(text: str, name: str = "", *, is_complete: bool = True) -> tuple[Document, str]:
    """Return the document and the reference of a model's answer.

    Args:
        text: the answer.
        name: name of the task; empty: the document's.
        is_complete: the model ended the answer by itself.

    Raises:
        UnusableError: it does not contain the two blocks.
        ConfigError: they do not make a task that may be drafted.
    """
    blocks = read_blocks(split_reasoning(text).answer, is_complete=is_complete)
    document, reference = _the_one(blocks, _TOML), _the_one(blocks, _PYTHON)
    if len(blocks) > 2:
        raise UnusableError(f"there are {len(blocks)} fenced blocks; give one of toml, one of python, and no other")
    return read_draft(document, reference, name), reference.rstrip("\n") + "\n"


def _the_one(blocks: list[Block], tags: tuple[str, ...]) -> str:
    found = [block.text for block in blocks if block.tag in tags]
    if len(found) != 1:
        raise UnusableError(f"there are {len(found)} fenced blocks of {tags[0]}; give exactly one")
    return found[0]
