"""The dialect `chat`: chat completions of any OpenAI-compatible endpoint."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec

from actors.llm.base import Request
from actors.llm.endpoint import EndpointModel, is_streamed, strict_format, without_none
from actors.llm.features import Features, seed_of
from actors.llm.transport import DONE, BrokenStreamError, NotUnderstoodError, Progress, Said, TokenCounts
from messages.base import Usage


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None

    @property
    def text(self) -> str:
        return self.content or self.refusal or ""


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _Completion(msgspec.Struct):
    """The fields that are read from a response; the package's own types are not checked against the endpoint's text."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None
    usage: TokenCounts | None = None


class _Delta(msgspec.Struct):
    delta: _Message | None = None
    finish_reason: str | None = None
    index: int = 0


class _Trouble(msgspec.Struct):
    message: str = ""


class _Chunk(msgspec.Struct):
    choices: list[_Delta] = []
    model: str | None = None
    usage: TokenCounts | None = None
    error: _Trouble | str | None = None


class _Gathering:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._usage: Usage | None = None
        self._done = False

    @property
    def is_whole(self) -> bool:
        return self._done or self._finish_reason is not None

    @property
    def is_enough(self) -> bool:
        return self._progress.is_enough and not self.is_whole

    @property
    def said(self) -> Said:
        return Said(
            text=self._progress.text,
            model=self._model,
            finish_reason=self._finish_reason or "stop",
            usage=self._usage if self.is_whole else None,
        )

    def take(self, event: str) -> None:
        if event == DONE:
            self._done = True
            return
        try:
            chunk = msgspec.convert(json.loads(event), _Chunk)
        except ValueError as error:
            raise NotUnderstoodError(str(error)) from error
        if chunk.error is not None:
            said = chunk.error if isinstance(chunk.error, str) else chunk.error.message
            raise BrokenStreamError(f"the endpoint broke its answer off: {said}")
        self._model = chunk.model or self._model
        self._usage = chunk.usage.usage if chunk.usage else self._usage
        for choice in chunk.choices:
            if choice.index:
                continue
            self._finish_reason = choice.finish_reason or self._finish_reason
            if choice.delta is not None:
                self._progress.take(choice.delta.text)


class ChatModel(EndpointModel):
    """One model at one endpoint, asked by chat completions."""

    path = "/chat/completions"
    noun = "chat completions"
    gathering = _Gathering
    renames_limit = True

    def question(self, request: Request, features: Features) -> dict[str, object]:
        """See `EndpointModel.question`."""
        sampling, streamed = self._sampling, is_streamed(request, features)
        messages = [{"role": "system", "content": request.system}, {"role": "user", "content": request.prompt}]
        schema = strict_format(request, features)
        return without_none(
            model=self._model,
            messages=messages,
            temperature=sampling.temperature,
            **{features.max_tokens_name: sampling.max_tokens},
            reasoning_effort=sampling.reasoning_effort,
            seed=seed_of(sampling.seed, request.request_id) if sampling.seed is not None else None,
            response_format={"type": "json_schema", "json_schema": schema} if schema else None,
            stream=streamed or None,
            stream_options={"include_usage": True} if streamed and features.usage_in_stream else None,
        )

    def read(self, body: bytes) -> Said:
        """See `EndpointModel.read`. Uses the first choice."""
        # json, since msgspec's decoder refuses the lone surrogates that models sometimes emit.
        completion = msgspec.convert(json.loads(body), _Completion)
        choice = completion.choices[0]
        return Said(
            text=choice.message.text,
            model=completion.model,
            finish_reason=choice.finish_reason or "stop",
            usage=completion.usage.usage if completion.usage else None,
            reports_caching=completion.usage is not None and completion.usage.reports_caching,
        )
