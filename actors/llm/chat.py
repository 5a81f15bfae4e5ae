"""The dialect `chat`: chat completions of any OpenAI-compatible endpoint.

Retries of time-outs, 408, 409, 429 and 5xx, with back-off and `Retry-After`, are the openai package's own; `tries`
notes each try that fails. What is left is turned into `ModelError` here, once: permanent where only the user can help.

Answers are not streamed: one counts as a whole or not at all, and a try that breaks off is the package's to repeat.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Annotated

import anyio
import msgspec
import openai
from openai.types.chat import ChatCompletionMessageParam

from actors.llm.base import Answer, ReasoningEffort, Request
from actors.llm.tokens import estimated_usage
from actors.llm.tries import AnswerTooLongError, NeverReachedError, TryingClient, noting, timeout_of
from messages.base import Usage
from messages.errors import ModelError
from messages.faults import EndpointFault, fault_words

DEFAULT_TIMEOUT_S = 600.0
_NO_KEY = "none"
"""Sent to endpoints that ask for none: the package insists on one."""
_ABOUT_THE_QUESTION = frozenset({400, 413, 422})
_SPARED_REFUSALS = 2
"""Before anything was answered; what is refused then is likely to be refused always."""
_SHOWN = 300


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent along with every question; null is left to the endpoint."""

    temperature: float | None = None
    max_tokens: int | None = None
    """Output tokens, hidden reasoning included."""
    reasoning_effort: ReasoningEffort | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


class _TokenDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _TokenCounts(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _TokenDetails | None = None


class _Completion(msgspec.Struct):
    """What is read of a response: the package's own types are not checked against what the endpoint sent."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]
    model: str | None = None
    usage: _TokenCounts | None = None


class ChatModel:
    """One model at one endpoint."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_retries: int = 4,
        concurrency: int = 8,
        sampling: Sampling | None = None,
    ) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            model: its name as the endpoint knows it.
            base_url: the endpoint, e.g. `http://127.0.0.1:8000/v1`; None: the openai package's default.
            api_key: sent as bearer token; None for endpoints without keys.
            timeout_s: of one call with all its retries.
            max_retries: how often the package tries again.
            concurrency: calls in flight at once; more wait, which is not part of the time-out.
            sampling: temperature and the like.
        """
        self._model = model
        self._timeout_s = timeout_s
        self._has_answered = False
        self._refusals = 0
        is_encrypted = not (base_url or "").lower().startswith("http:")
        self._http = TryingClient(timeout_s=timeout_s, secret=api_key or "", is_encrypted=is_encrypted)
        self._client = openai.AsyncOpenAI(
            api_key=api_key or _NO_KEY,
            base_url=base_url,
            timeout=timeout_of(timeout_s),
            max_retries=max_retries,
            http_client=self._http,
            default_headers={"Accept-Encoding": "identity"},  # bounds count what is sent, not what it unpacks to
        )
        self._key = api_key or ""
        self._faults: dict[str, list[EndpointFault]] = {}
        self._limiter = anyio.CapacityLimiter(concurrency)
        self._sampling = sampling or Sampling()

    async def complete(self, request: Request) -> Answer:
        """Answer one question.

        The answer tells of all tries under this request id that failed, those of earlier calls included. A question
        that the endpoint refuses (too long, against its rules) has an empty answer that says so, unless the endpoint
        refuses whatever it is asked.

        Raises:
            ModelError: the endpoint failed; permanent for a refused key, an unknown model or address, or if every
                question is refused.
        """
        faults = self._faults.setdefault(request.request_id, [])
        try:
            async with self._limiter:
                started = anyio.current_time()
                with noting(faults):
                    body = await self._ask(request, faults)
                latency_s = anyio.current_time() - started
                if body is None:
                    answer = self._refusal(faults, latency_s)
                else:
                    answer = self._answer(request, body, faults, latency_s)
                    self._has_answered = True
        except ModelError as error:
            if error.permanent:
                self._faults.pop(request.request_id, None)
            raise
        self._faults.pop(request.request_id, None)
        return answer

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, request: Request, faults: list[EndpointFault]) -> bytes | None:
        """Return the body of the endpoint's answer; None if it refuses this question and may answer others."""
        started = anyio.current_time()
        try:
            with anyio.fail_after(self._timeout_s):
                return await self._create(request)
        except TimeoutError as error:
            text = f"did not answer within {self._timeout_s:g} s"
            self._http.note(EndpointFault(kind="timed_out", detail=text), started)
            raise self._error(text, faults) from error
        except openai.APIStatusError as error:
            if error.status_code in _ABOUT_THE_QUESTION and self._is_spared():
                return None
            advice, permanent = self._refused(error, faults)
            raise self._error(advice, faults, permanent=permanent) from error
        except openai.APIConnectionError as error:
            text = "cannot be reached" if faults[-1].kind == "unreachable" else "broke the connection off"
            raise self._error(f"{text} ({faults[-1].detail})", faults) from error
        except NeverReachedError as error:
            text = f"cannot be reached ({error}): check the address, and that somebody listens there"
            raise self._error(text, faults, permanent=True) from error
        except AnswerTooLongError as error:
            raise self._error(f"sent too much, {error}: limit its answers (model.max_tokens)", faults) from error
        except openai.OpenAIError as error:
            raise self._error(f"failed: {error}", faults) from error

    def _is_spared(self) -> bool:
        """Say whether a refusal is taken for the question's fault: always once others were answered, else twice."""
        self._refusals += 1
        return self._has_answered or self._refusals <= _SPARED_REFUSALS

    def _refusal(self, faults: list[EndpointFault], latency_s: float) -> Answer:
        said = f"refused: HTTP {faults[-1].status}: {faults[-1].detail}"
        return Answer(
            text="", model=self._model, usage=Usage(), latency_s=latency_s, finish_reason=said, faults=tuple(faults)
        )

    async def _create(self, request: Request) -> bytes:
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": request.system},
            {"role": "user", "content": request.prompt},
        ]
        sampling = self._sampling
        response = await self._client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=messages,
            temperature=openai.omit if sampling.temperature is None else sampling.temperature,
            max_completion_tokens=openai.omit if sampling.max_tokens is None else sampling.max_tokens,
            reasoning_effort=openai.omit if sampling.reasoning_effort is None else sampling.reasoning_effort,
            extra_headers=_identity(request),
        )
        return response.content

    def _answer(self, request: Request, body: bytes, faults: list[EndpointFault], latency_s: float) -> Answer:
        """Return the first choice."""
        try:
            # json, since msgspec's decoder refuses the lone surrogates that models now and then emit.
            completion = msgspec.convert(json.loads(body), _Completion)
        except (ValueError, msgspec.ValidationError) as error:
            text = f"did not answer in the format of chat completions ({error}): check the address"
            faults.append(EndpointFault(kind="malformed", detail=str(error), elapsed_s=round(latency_s, 3)))
            raise self._error(text, faults) from error
        choice = completion.choices[0]
        message = choice.message
        text = _storable(message.content or message.refusal or "")
        return Answer(
            text=text,
            model=completion.model or self._model,
            usage=_usage(completion.usage) or estimated_usage(request, text),
            latency_s=latency_s,
            finish_reason=choice.finish_reason or "stop",
            faults=tuple(faults),
        )

    def _refused(self, error: openai.APIStatusError, faults: list[EndpointFault]) -> tuple[str, bool]:
        """Say what a status means and what to do about it, and whether only the user can."""
        match error.status_code:
            case 401 | 403:
                advice, permanent = "refused the key: check the API key in the environment", True
            case 404:
                advice, permanent = f"does not know the address or the model {self._model!r}: check both", True
            case 400 | 413 | 422:
                advice, permanent = "refused the request: check the model's limits and the sampling settings", True
            case 429:
                advice, permanent = "is over its rate limit or quota: lower the concurrency or check the account", False
            case _:
                advice, permanent = "failed", False
        said = _shortened(faults[-1].detail if faults else error.message)
        return f"{advice} (HTTP {error.status_code}{f': {said}' if said else ''})", permanent

    def _error(self, text: str, faults: list[EndpointFault], *, permanent: bool = False) -> ModelError:
        tries = f"; {len(faults)} tries failed: {fault_words(tuple(faults))}" if len(faults) > 1 else ""
        said = f"model {self._model!r} at {self._client.base_url}: the endpoint {text}{tries}"
        said = said.replace(self._key, "***") if self._key else said
        return ModelError(said, permanent=permanent, faults=tuple(faults))


def _identity(request: Request) -> dict[str, str]:
    """Return headers that make the same question recognisable, on retries, redelivery and resume.

    `X-Client-Request-Id` is what OpenAI logs. Gateways that know `Idempotency-Key` (the IETF's draft of that name) give
    the answer again that was paid for; they refuse a known key with another body, so the prompt is part of the key.
    """
    digest = blake2b(f"{request.system}\n\n{request.prompt}".encode("utf-8", "replace"), digest_size=8).hexdigest()
    return {"X-Client-Request-Id": request.request_id, "Idempotency-Key": f"{request.request_id}-{digest}"}


def _usage(counts: _TokenCounts | None) -> Usage | None:
    if counts is None:
        return None
    details = counts.prompt_tokens_details
    return Usage(
        calls=1,
        prompt_tokens=counts.prompt_tokens or 0,
        cached_tokens=(details.cached_tokens or 0) if details is not None else 0,
        completion_tokens=counts.completion_tokens or 0,
    )


def _storable(text: str) -> str:
    """Replace lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} …"
