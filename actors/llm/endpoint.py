"""The shared part of the dialects of OpenAI-compatible endpoints: sending a question, trying again, and failing.

Retries of time-outs, 408, 409, 429 and 5xx, with back-off and `Retry-After`, are the openai package's own; `transport`
notes each failed try. The last failure becomes a `ModelError` here, a permanent one if only the user can help. A broken
answer is a failed try, and is retried. Reading stops when an answer is complete (`Request.ending`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import anyio
import httpx2
import msgspec
import openai
import structlog

from actors.llm.answer_text import Unproven, split_reasoning
from actors.llm.base import Answer, Ending, Request, estimated_usage, masked, masked_answer
from actors.llm.features import Features, Sampling, after_overlong, without_refused
from actors.llm.transport import (
    AnswerTooLongError,
    Call,
    Gathering,
    NeverReachedError,
    NotUnderstoodError,
    Progress,
    Said,
    TryingClient,
    is_spent,
    noting,
    timeout_of,
)
from messages.base import EndpointFault, ModelError, Usage, fault_words

DEFAULT_TIMEOUT_S: Final = 600.0
ENDED_EARLY: Final = "ended_early"
"""Finish reason of an answer that was complete before its end was read."""
_NO_KEY: Final = "none"
"""Key for endpoints without keys, since the package requires one."""
_ABOUT_THE_QUESTION: Final = frozenset({400, 413, 422})
_SPARED_REFUSALS: Final = 2
"""Number of refusals before any answer that are blamed on the question."""
_SHOWN: Final = 300

log = structlog.get_logger(__name__)


class EndpointModel(ABC):
    """One model at one endpoint, in one dialect."""

    path: str
    """Path of questions, below the endpoint's address."""
    noun: str
    """Name of the format of answers."""
    gathering: Callable[[Progress], Gathering]
    """Assembles a streamed answer."""
    renames_limit = False
    """True if the limit of an answer has an older name to fall back to; see `after_overlong`."""

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
        features: Features | None = None,
    ) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            model: its name at the endpoint.
            base_url: the endpoint, e.g. `http://127.0.0.1:8000/v1`; None: the openai package's default.
            api_key: bearer token; None for endpoints without keys.
            timeout_s: for one call with all its retries.
            max_retries: retries by the package.
            concurrency: calls in flight; waiting for one is not part of the time-out.
            sampling: temperature and similar settings.
            features: features that the endpoint accepts. A refused one is left out from then on, and logged.
        """
        self._model = model
        self._timeout_s = timeout_s
        self._has_answered = False
        self._has_kept_to_schema = False
        self._marks_reasoning: bool | None = None
        """True if its reasoning begins with a mark; None: not known from any answer yet."""
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
        self.features = features or Features()
        """Features in use."""
        self.has_streamed = False
        """True once an answer came as a stream."""
        self.reports_caching = False
        """True once an answer reported how much of its prompt was cached."""

    @abstractmethod
    def question(self, request: Request, features: Features) -> dict[str, object]:
        """Return the body of a question."""

    @abstractmethod
    def read(self, body: bytes) -> Said:
        """Read a complete answer.

        Raises:
            ValueError: it is not in this dialect; msgspec's ValidationError is a ValueError.
        """

    async def complete(self, request: Request) -> Answer:
        """Answer one question.

        The answer lists all failed tries under this request id, those of earlier calls included. A question that the
        endpoint refuses (too long, against its rules) gets an empty answer with the reason, unless every question is
        refused. Tokens of an answer that was ended early are estimated, without hidden reasoning.

        Raises:
            ModelError: the endpoint failed; permanent for a refused key, an unknown model or address, or if every
                question is refused.
        """
        faults = self._faults.setdefault(request.request_id, [])
        try:
            async with self._limiter:
                started = anyio.current_time()
                said = await self._ask(request, faults)
                latency_s = anyio.current_time() - started
        except ModelError as error:
            if error.permanent:
                self._faults.pop(request.request_id, None)
            raise
        self._faults.pop(request.request_id, None)
        return self._answer(request, said, faults, latency_s)

    async def model_names(self) -> list[str]:
        """Return the models that the endpoint lists. Raises errors of the openai package."""
        return [entry.id async for entry in self._client.models.list()]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _ask(self, request: Request, faults: list[EndpointFault]) -> Said | None:
        """Return the endpoint's answer; None if it refuses this question and may answer others."""
        started = anyio.current_time()
        try:
            with anyio.fail_after(self._timeout_s):
                said = await self._said(request, faults)
        except TimeoutError as error:
            text = f"did not answer within {self._timeout_s:g} s"
            self._note(faults, EndpointFault(kind="timed_out", detail=text), started)
            raise self._error(text, faults) from error
        except openai.APIStatusError as error:
            if error.status_code in _ABOUT_THE_QUESTION and self._is_spared():
                return None
            advice, permanent = self._refused(error, faults)
            raise self._error(advice, faults, permanent=permanent) from error
        except openai.OpenAIError as error:
            raise self._failure(error, faults) from error
        self._has_answered = True
        self.reports_caching |= said.reports_caching
        return said

    async def _said(self, request: Request, faults: list[EndpointFault]) -> Said:
        """Ask. If the endpoint refuses an optional feature, ask once more without it."""
        while True:
            used, started = self.features, anyio.current_time()
            try:
                with noting(faults, lambda: self.gathering(Progress(self._ending(request)))) as call:
                    response = await self._post(request, used)
            except openai.APIStatusError as error:
                if error.status_code not in _ABOUT_THE_QUESTION or not self._gives_up_feature(request, used, faults):
                    raise
            else:
                said = self._read(response, call, started)
                self._has_kept_to_schema |= used.structured and request.schema is not None
                self._look_at_length(request, said, used)
                self._look_at_reasoning(said)
                return said

    def _ending(self, request: Request) -> Ending | None:
        if request.ending is None or self._marks_reasoning is False:
            return None
        ending = request.ending()
        return Unproven(ending) if self._marks_reasoning is None else ending

    def _look_at_reasoning(self, said: Said) -> None:
        if split_reasoning(said.text).began_inside:
            self._marks_reasoning = False
        elif self._marks_reasoning is None and said.finish_reason in ("stop", ENDED_EARLY):
            self._marks_reasoning = True

    def _gives_up_feature(self, request: Request, used: Features, faults: list[EndpointFault]) -> bool:
        """Return True if a refusal was about a feature, which is then no longer used."""
        refused = faults[-1]
        asked_structured = used.structured and request.schema is not None and not self._has_kept_to_schema
        fewer = without_refused(used, refused.detail, asked_structured=asked_structured)
        if fewer is None:
            return False
        if self.features == used:  # of calls that were refused at once the first one says so
            self.features = fewer
            log.warning("the model's endpoint refuses a feature; asking without it", detail=refused.detail)
        return True

    def _look_at_length(self, request: Request, said: Said, used: Features) -> None:
        if not self.renames_limit:
            return
        usage = said.usage
        # An estimate may be too high by half. Endpoints that count no tokens in streams are those with the older name.
        tokens = usage.completion_tokens if usage else estimated_usage(request, said.text).completion_tokens // 2
        renamed = after_overlong(used, self._sampling.max_tokens, tokens)
        if renamed is not None and self.features == used:
            self.features = renamed
            log.warning("the model's endpoint passes over max_completion_tokens; asking with max_tokens", tokens=tokens)

    async def _post(self, request: Request, features: Features) -> httpx2.Response:
        body = self.question(request, features)
        return await self._client.post(
            self.path, body=body, cast_to=httpx2.Response, options={"headers": _identity(request, body)}
        )

    def _read(self, response: httpx2.Response, call: Call, started: float) -> Said:
        if call.gathered is not None:
            self.has_streamed = True
            said = call.gathered.said
            return said if call.gathered.is_whole else msgspec.structs.replace(said, finish_reason=ENDED_EARLY)
        try:
            return self.read(response.content)
        except ValueError as error:
            self._note(call.faults, EndpointFault(kind="malformed", detail=str(error)), started)
            raise NotUnderstoodError(str(error)) from error

    def _answer(self, request: Request, said: Said | None, faults: list[EndpointFault], latency_s: float) -> Answer:
        if said is None:
            reason = f"refused: HTTP {faults[-1].status}: {faults[-1].detail}"
            return Answer(
                text="",
                model=self._model,
                usage=Usage(),
                latency_s=latency_s,
                finish_reason=reason,
                faults=tuple(faults),
            )
        text = masked_answer(said.text.encode("utf-8", "replace").decode(), self._key)  # without lone surrogates
        estimated = msgspec.structs.replace(estimated_usage(request, text), estimated_calls=1)
        return Answer(
            text=text,
            model=masked_answer(said.model or self._model, self._key),
            usage=said.usage or estimated,
            latency_s=latency_s,
            finish_reason=masked_answer(said.finish_reason, self._key),
            faults=tuple(faults),
        )

    def _failure(self, error: openai.OpenAIError, faults: list[EndpointFault]) -> ModelError:
        match error:
            case openai.APIConnectionError():
                text = "cannot be reached" if faults[-1].kind == "unreachable" else "broke the connection off"
                return self._error(f"{text} ({faults[-1].detail})", faults)
            case NeverReachedError():
                text = f"cannot be reached ({error}): check the address, and that a server listens there"
                return self._error(text, faults, permanent=True)
            case AnswerTooLongError():
                return self._error(f"sent too much, {error}: limit its answers (model.max_tokens)", faults)
            case NotUnderstoodError():
                text = f"did not answer in the format of {self.noun} ({error}): check the address"
                return self._error(text, faults)
            case _:
                return self._error(f"failed: {error}", faults)

    def _note(self, faults: list[EndpointFault], fault: EndpointFault, started: float) -> None:
        with noting(faults):
            self._http.note(fault, started)

    def _is_spared(self) -> bool:
        """Return True if a refusal is blamed on the question: always after other answers, else twice."""
        self._refusals += 1
        return self._has_answered or self._refusals <= _SPARED_REFUSALS

    def _refused(self, error: openai.APIStatusError, faults: list[EndpointFault]) -> tuple[str, bool]:
        match error.status_code:
            case 401 | 403:
                advice, permanent = "refused the key: check the API key in the environment", True
            case 404:
                advice, permanent = f"does not know the address or the model {self._model!r}: check both", True
            case 400 | 413 | 422:
                advice, permanent = "refused the request: check the model's limits and the sampling settings", True
            case status if is_spent(status, error.code):
                advice, permanent = "wants to be paid: check the account's quota and credit", True
            case 429:
                advice, permanent = "is over its rate limit or quota: lower the concurrency or check the account", False
            case _:
                advice, permanent = "failed", False
        said = _shortened(faults[-1].detail if faults else error.message)
        return f"{advice} (HTTP {error.status_code}{f': {said}' if said else ''})", permanent

    def _error(self, text: str, faults: list[EndpointFault], *, permanent: bool = False) -> ModelError:
        tries = f"; {len(faults)} tries failed: {fault_words(tuple(faults))}" if len(faults) > 1 else ""
        said = f"model {self._model!r} at {self._client.base_url}: the endpoint {text}{tries}"
        return ModelError(masked(said, self._key), permanent=permanent, faults=tuple(faults))


def is_streamed(request: Request, features: Features) -> bool:
    """Return True if an answer is streamed, which is so only if it may be ended early."""
    return features.streams and request.ending is not None


def strict_format(request: Request, features: Features) -> dict[str, object] | None:
    """Return the form to which the model is constrained, if the endpoint supports it."""
    if not features.structured or request.schema is None:
        return None
    return {"name": request.schema.name, "strict": True, "schema": request.schema.schema}


def without_none(**fields: object) -> dict[str, object]:
    """Return the fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _identity(request: Request, body: dict[str, object]) -> dict[str, str]:
    """Return headers that identify the same question on retries, redelivery and resume.

    `X-Client-Request-Id` is logged by OpenAI. Gateways that know `Idempotency-Key` give the paid answer again and
    refuse a known key with another body, so the body is part of the key.
    """
    digest = blake2b(msgspec.json.encode(body, order="deterministic"), digest_size=8).hexdigest()
    return {"X-Client-Request-Id": request.request_id, "Idempotency-Key": f"{request.request_id}-{digest}"}


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SHOWN else f"{flat[:_SHOWN]} …"
