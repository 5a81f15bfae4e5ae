"""Finds out an endpoint's features with a few tiny questions, each with one feature more.

The questions take the same path as a search's, so that a search meets the same behaviour. An accepted parameter may
have no effect: only structured output is checked.
"""

from __future__ import annotations

import json
from typing import Final
from uuid import uuid4

import msgspec
import openai

from actors.llm.base import Answer, AnswerSchema, Request, masked
from actors.llm.chat import ChatModel
from actors.llm.endpoint import EndpointModel
from actors.llm.features import Capabilities, Features, MaxTokensName, ProbedDialect, Sampling, State
from actors.llm.responses import ResponsesModel
from messages.base import ModelError, Usage

_LIMIT_TOKENS: Final = 512
"""Limit of each answer: reasoning models need some tokens before the first word."""
_RETRIES: Final = 1
_REFUSED: Final = "refused: "
_SHOWN: Final = 80
_DIALECTS: Final[tuple[ProbedDialect, ...]] = ("chat", "responses")
_SCHEMA: Final = AnswerSchema(
    name="greeting",
    schema={
        "type": "object",
        "properties": {"language": {"type": "string"}, "words": {"type": "integer"}},
        "required": ["language", "words"],
        "additionalProperties": False,
    },
)
"""Nothing in the question asks for this form: only an enforced schema produces it."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One feature that was probed."""

    name: str
    state: State
    detail: str


class _Reply(msgspec.Struct, frozen=True, kw_only=True):
    answer: Answer | None = None
    said: str = ""
    """Reason for a missing answer."""
    is_refusal: bool = False
    """True if it was refused; any other failure shows nothing."""

    @property
    def state(self) -> State:
        return "yes" if self.answer is not None else "no" if self.is_refusal else "unknown"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a probe."""

    capabilities: Capabilities
    findings: tuple[Finding, ...]
    questions: int
    """Questions asked and paid for."""
    usage: Usage


async def probe_endpoint(*, model: str, base_url: str | None, api_key: str, timeout_s: float) -> Probe:
    """Probe an endpoint's features; `timeout_s` is for one question. Never raises for the endpoint's faults."""
    probing = _Probing(model, base_url, api_key, timeout_s)
    if await probing.is_there():
        await probing.find_dialects()
    if probing.dialects:
        await probing.find_parameters()
        await probing.find_streams()
        await probing.find_structured()
    return probing.result()


class _Probing:
    def __init__(self, model: str, base_url: str | None, api_key: str, timeout_s: float) -> None:
        self._model = model
        self._base_url = base_url
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._findings: list[Finding] = []
        self._questions = 0
        self._usage = Usage()
        self._found: dict[str, State] = {}
        self._refused: list[str] = []
        self._max_tokens_name: MaxTokensName = "max_completion_tokens"
        self._limit: int | None = None
        self._question = Request(
            request_id=f"ksearch-doctor-{uuid4().hex}",  # gateways that keep answers shall not know it
            role="planner",
            system="You are asked to be brief.",
            parts=("Say hello in one word.",),
        )
        self.dialects: list[ProbedDialect] = []

    def result(self) -> Probe:
        capabilities = Capabilities(
            model=self._model,
            base_url=self._base_url,
            dialects=tuple(self.dialects),
            structured=self._found.get("structured", "unknown"),
            streams=self._found.get("streams", "unknown"),
            usage_in_stream=self._found.get("usage_in_stream", "unknown"),
            max_tokens_name=self._max_tokens_name,
            refused=tuple(self._refused),
            caching_reported=self._found.get("caching", "unknown"),
        )
        return Probe(
            capabilities=capabilities, findings=tuple(self._findings), questions=self._questions, usage=self._usage
        )

    async def is_there(self) -> bool:
        """Return True if the endpoint answers; reads the list of models, which is free and not everywhere."""
        asked = self._model_for("chat", Sampling())
        try:
            names = await asked.model_names()
        except openai.APIStatusError as error:
            self._say("reachable", "yes", f"but it lists no models (HTTP {error.status_code})")
        except (openai.OpenAIError, ValueError, TypeError) as error:
            said = masked(str(error.__cause__ or error), self._api_key)
            is_answer = not isinstance(error, openai.APIConnectionError)
            self._say(
                "reachable", "yes" if is_answer else "no", f"but no list of models: {said}" if is_answer else said
            )
            return is_answer
        else:
            self._say("reachable", "yes", f"it lists {len(names)} {'model' if len(names) == 1 else 'models'}")
            listed: State = "yes" if self._model in names else "no"
            others = ", ".join(repr(name) for name in names[:5])
            self._say("model listed", listed, repr(self._model) if listed == "yes" else f"there are {others or 'none'}")
        finally:
            await asked.aclose()
        return True

    async def find_dialects(self) -> None:
        for dialect in _DIALECTS:
            asked = self._model_for(dialect, Sampling(max_tokens=_LIMIT_TOKENS))
            limited = await self._ask(asked, self._question)
            reply = limited
            if limited.is_refusal:
                reply = await self._ask(self._model_for(dialect, Sampling()), self._question)
            if reply.answer is None:
                self._say(f"dialect {dialect}", "no", reply.said)
                continue
            self.dialects.append(dialect)
            answer = reply.answer
            self._say(f"dialect {dialect}", "yes", f"answered in {answer.latency_s:.1f} s as {answer.model!r}")
            if dialect == self.dialects[0]:
                self._note_limit(asked, limited)
                self._note_usage(asked, answer)

    async def find_parameters(self) -> None:
        parameters = {
            "temperature": Sampling(max_tokens=self._limit, temperature=0.7),
            "seed": Sampling(max_tokens=self._limit, seed=7),
            "reasoning_effort": Sampling(max_tokens=self._limit, reasoning_effort="low"),
        }
        for name, sampling in parameters.items():
            reply = _Reply(said="the Responses API has none", is_refusal=True)
            if name != "seed" or self.dialects[0] != "responses":
                reply = await self._ask(self._model_for(self.dialects[0], sampling), self._question)
            self._say(name, reply.state, reply.said or "taken")
            if reply.is_refusal:
                self._refused.append(name)

    async def find_streams(self) -> None:
        asked = self._model_for(self.dialects[0], Sampling(max_tokens=self._limit), streams=True)
        reply = await self._ask(asked, msgspec.structs.replace(self._question, ending=_Never))
        if reply.answer is None or not asked.has_streamed:
            state: State = reply.state if reply.answer is None else "no"
            self._found["streams"] = state
            self._say("streaming", state, reply.said or "it sends all at once")
            return
        self._found["streams"] = "yes"
        self._say("streaming", "yes", "")
        counted: State = "no" if reply.answer.usage.estimated_calls else "yes"
        self._found["usage_in_stream"] = counted
        self._say("usage in stream", counted, "" if counted == "yes" else "tokens of streamed answers are estimated")

    async def find_structured(self) -> None:
        asked = self._model_for(self.dialects[0], Sampling(max_tokens=self._limit), structured=True)
        reply = await self._ask(asked, msgspec.structs.replace(self._question, schema=_SCHEMA))
        state, said = reply.state, reply.said
        if reply.answer is not None and not asked.features.structured:
            state, said = "no", reply.answer.faults[-1].detail
        elif reply.answer is not None and not _keeps_to_schema(reply.answer.text):
            state = "unknown" if reply.answer.finish_reason == "length" else "no"
            said = f"accepted but not followed: {reply.answer.text[:_SHOWN]!r}"
        self._found["structured"] = state
        self._say("structured output", state, said)

    def _note_limit(self, asked: EndpointModel, reply: _Reply) -> None:
        self._max_tokens_name = asked.features.max_tokens_name
        self._limit = None if reply.is_refusal else _LIMIT_TOKENS
        name = self._max_tokens_name if self.dialects[0] == "chat" else "max_output_tokens"
        self._say("answer limit", reply.state, reply.said or f"as {name}")

    def _note_usage(self, asked: EndpointModel, answer: Answer) -> None:
        if answer.usage.estimated_calls:
            self._say("usage", "no", "it counts no tokens: they are estimated")
            return
        self._say("usage", "yes", f"{answer.usage.prompt_tokens} + {answer.usage.completion_tokens} tokens")
        self._found["caching"] = "yes" if asked.reports_caching else "no"
        said = "" if asked.reports_caching else "it does not say what it had cached"
        self._say("prompt caching", self._found["caching"], said)

    def _model_for(
        self, dialect: ProbedDialect, sampling: Sampling, *, streams: bool = False, structured: bool = False
    ) -> EndpointModel:
        made = ChatModel if dialect == "chat" else ResponsesModel
        return made(
            model=self._model,
            base_url=self._base_url,
            api_key=self._api_key,
            timeout_s=self._timeout_s,
            max_retries=_RETRIES,
            sampling=sampling,
            features=Features(structured=structured, streams=streams, max_tokens_name=self._max_tokens_name),
        )

    async def _ask(self, asked: EndpointModel, request: Request) -> _Reply:
        self._questions += 1
        try:
            answer = await asked.complete(request)
        except ModelError as error:
            return _Reply(said=str(error).partition(": the endpoint ")[2] or str(error))
        finally:
            await asked.aclose()
        self._usage = self._usage.plus(answer.usage)
        if answer.finish_reason.startswith(_REFUSED):
            return _Reply(said=answer.finish_reason.removeprefix(_REFUSED), is_refusal=True)
        return _Reply(answer=answer)

    def _say(self, name: str, state: State, detail: str) -> None:
        self._findings.append(Finding(name=name, state=state, detail=detail))


class _Never:
    patience_chars = 0

    def take(self, _piece: str) -> bool:
        return False


def _keeps_to_schema(text: str) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and value.keys() == {"language", "words"} and isinstance(value["words"], int)
