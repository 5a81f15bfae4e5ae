"""The dialect `responses`: OpenAI's Responses API, which others serve, too. Nothing is stored at the endpoint."""

from __future__ import annotations

import json

import msgspec

from actors.llm.base import Request
from actors.llm.endpoint import EndpointModel, is_streamed, strict_format, without_none
from actors.llm.features import Features
from actors.llm.transport import DONE, BrokenStreamError, NotUnderstoodError, Progress, Said, TokenCounts, TokenDetails

_CUT_OFF = {"max_output_tokens": "length"}
"""Reasons of incomplete answers, in the words of chat completions."""


class _Content(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    content: list[_Content] | None = None


class _TokenCounts(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: TokenDetails | None = None
    output_tokens_details: TokenDetails | None = None

    @property
    def plain(self) -> TokenCounts:
        return TokenCounts(self.input_tokens, self.output_tokens, self.input_tokens_details, self.output_tokens_details)


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Trouble(msgspec.Struct):
    message: str | None = None


class _Response(msgspec.Struct):
    output: list[_Item]
    model: str | None = None
    status: str | None = None
    usage: _TokenCounts | None = None
    incomplete_details: _Incomplete | None = None
    error: _Trouble | None = None

    @property
    def text(self) -> str:
        contents = (content for item in self.output if item.type == "message" for content in item.content or ())
        return "".join(content.text or content.refusal or "" for content in contents)


class _Event(msgspec.Struct):
    type: str
    delta: object = None
    response: object = None
    message: str | None = None


class _Gathering:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._response: _Response | None = None

    @property
    def is_whole(self) -> bool:
        return self._response is not None

    @property
    def is_enough(self) -> bool:
        return self._progress.is_enough or self.is_whole

    @property
    def said(self) -> Said:
        if self._response is None:
            return Said(text=self._progress.text)
        said = _said(self._response)
        return said if said.text else msgspec.structs.replace(said, text=self._progress.text)

    def take(self, event: str) -> None:
        if event == DONE:
            return
        try:
            read = msgspec.convert(json.loads(event), _Event)
            match read.type:
                case "response.output_text.delta" | "response.refusal.delta":
                    self._progress.take(msgspec.convert(read.delta, str))
                case "response.completed" | "response.incomplete":
                    self._response = msgspec.convert(read.response, _Response)
                case "response.failed":
                    raise BrokenStreamError(
                        f"the endpoint failed: {_message(msgspec.convert(read.response, _Response))}"
                    )
                case "error":
                    raise BrokenStreamError(f"the endpoint broke its answer off: {read.message or event}")
                case _:
                    pass
        except ValueError as error:
            raise NotUnderstoodError(str(error)) from error


class ResponsesModel(EndpointModel):
    """One model at one endpoint, asked by the Responses API."""

    path = "/responses"
    noun = "the Responses API"
    gathering = _Gathering

    def question(self, request: Request, features: Features) -> dict[str, object]:
        """See `EndpointModel.question`. The API has no seed."""
        sampling = self._sampling
        schema = strict_format(request, features)
        return without_none(
            model=self._model,
            instructions=request.system,
            input=request.prompt,
            store=False,
            temperature=sampling.temperature,
            max_output_tokens=sampling.max_tokens,
            reasoning={"effort": sampling.reasoning_effort} if sampling.reasoning_effort is not None else None,
            text={"format": {"type": "json_schema", **schema}} if schema else None,
            stream=is_streamed(request, features) or None,
        )

    def read(self, body: bytes) -> Said:
        """See `EndpointModel.read`."""
        response = msgspec.convert(json.loads(body), _Response)
        if response.status in ("failed", "cancelled"):
            raise ValueError(f"its status is {response.status!r}: {_message(response)}")
        return _said(response)


def _said(response: _Response) -> Said:
    return Said(
        text=response.text,
        model=response.model,
        finish_reason=_finish_reason(response),
        usage=response.usage.plain.usage if response.usage else None,
        reports_caching=response.usage is not None and response.usage.plain.reports_caching,
    )


def _finish_reason(response: _Response) -> str:
    if response.status != "incomplete":
        return "stop"
    reason = (response.incomplete_details.reason if response.incomplete_details else None) or "incomplete"
    return _CUT_OFF.get(reason, reason)


def _message(response: _Response) -> str:
    return (response.error.message if response.error else None) or "it does not say why"
