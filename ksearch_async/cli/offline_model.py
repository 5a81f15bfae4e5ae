"""`ksearch offline-model`: the built-in rules as an OpenAI-compatible endpoint on this host, which fails as told."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import anyio
from cyclopts import Parameter

from actors.llm.offline.mistakes import MISTAKES, MistakeKind, Mistakes, most_kinds
from actors.llm.offline.model import MODEL_NAME, OfflineModel
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.views.terminal import note, put, put_json

if TYPE_CHECKING:
    from socket import socket

    from actors.llm.served.app import Conduct, Report, Served


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FaultFlags:
    """Shares of requests that fail, 0 to 1."""

    rate_limit: float | None = None
    """Share of questions, 0 to 1, that get HTTP 429 with `Retry-After`. [default: 0]"""
    server_error: float | None = None
    """Share of questions that get HTTP 500. [default: 0]"""
    hang: float | None = None
    """Share of questions that never get an answer. [default: 0]"""
    cut: float | None = None
    """Share of answers that are cut in half, with the connection closed. [default: 0]"""
    endless: float | None = None
    """Share of answers that never end. [default: 0]"""
    faults: float = 0.0
    """Share for each of the five faults above that is not set by its own option."""
    retry_after: float = 1.0
    """Seconds to wait that a 429 asks for."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AnswerFlags:
    """How the rules answer."""

    seed: int = 0
    """Seed of the answers, mistakes and faults, as `ksearch run --seed`."""
    latency: float = 0.0
    """Seconds that every answer takes."""
    mistakes: float = 0.0
    """Share of answers into which a mistake that models make is put, 0 to 1."""
    each_mistake: float = 0.0
    """Share of answers for each kind of mistake separately, instead of `--mistakes`."""
    mistake_kinds: Annotated[
        tuple[MistakeKind, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = MISTAKES
    """Kinds of mistakes to make. [default: all]"""


NO_FAULTS = FaultFlags()
PLAIN_ANSWERS = AnswerFlags()


def offline_model_command(
    *,
    port: int = 8000,
    api_key: str | None = None,
    concurrency_limit: int | None = None,
    answers: AnswerFlags = PLAIN_ANSWERS,
    failing: FaultFlags = NO_FAULTS,
    as_json: JsonFlag = False,
) -> int:
    """Serve the built-in rules as an OpenAI-compatible endpoint.

    Args:
        port: Port to listen on, on 127.0.0.1; 0 takes a free port.
        api_key: Key that requests must have.
        concurrency_limit: Answer 429 to requests beyond this many at once.
        answers: How the rules answer.
        failing: How often requests fail.
        as_json: Print the address, and at the end the summary, as JSON objects.
    """
    _check(port, concurrency_limit, answers, failing)
    listener = _listener(port)
    of_each = answers.each_mistake > 0
    rate = answers.each_mistake if of_each else answers.mistakes
    mistakes = Mistakes(rate, seed=answers.seed, kinds=answers.mistake_kinds, of_each=of_each)
    model = OfflineModel(seed=answers.seed, latency_s=answers.latency, mistakes=mistakes)
    gc.enable()  # `main` disabled it for the start; a server may run for days
    report = anyio.run(_serve, model, _conduct(api_key, concurrency_limit, answers, failing), listener, as_json)
    if as_json:
        put_json(report)
    else:
        for line in _summary(report):
            note(line)
    return exits.FOUND


async def _serve(model: OfflineModel, conduct: Conduct, listener: socket, as_json: bool) -> Report:
    from actors.llm.served.app import Served  # noqa: PLC0415 - starlette and uvicorn serve no other command
    from actors.llm.served.server import serve_app  # noqa: PLC0415

    served: Served = Served(model, conduct)
    base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            await tasks.start(serve_app, served.app, listener)
            if as_json:
                put_json({"base_url": base_url, "model": MODEL_NAME})
            else:
                put(f"listening on {base_url}")
            async for _ in signals:
                tasks.cancel_scope.cancel()
                break
    return served.report()


def _conduct(api_key: str | None, concurrency_limit: int | None, answers: AnswerFlags, failing: FaultFlags) -> Conduct:
    from actors.llm.served.app import Conduct, FaultRates  # noqa: PLC0415

    return Conduct(
        faults=FaultRates(**_rates(failing)),
        seed=answers.seed,
        retry_after_s=failing.retry_after,
        api_key=api_key or "",
        concurrency_limit=concurrency_limit,
    )


def _listener(port: int) -> socket:
    from actors.llm.served.server import listening_socket  # noqa: PLC0415

    try:
        return listening_socket(port)
    except OSError as error:
        raise refusal(f"cannot listen on port {port}: {error.strerror}", "--port 0 takes a free one") from error


def _rates(failing: FaultFlags) -> dict[str, float]:
    given = {name: getattr(failing, name) for name in ("rate_limit", "server_error", "hang", "cut", "endless")}
    return {name: failing.faults if rate is None else rate for name, rate in given.items()}


def _check(port: int, concurrency_limit: int | None, answers: AnswerFlags, failing: FaultFlags) -> None:
    rates = _rates(failing)
    shares = {"faults": failing.faults, "mistakes": answers.mistakes, "each_mistake": answers.each_mistake}
    for name, share in (rates | shares).items():
        if not 0.0 <= share <= 1.0:
            raise refusal(f"--{name.replace('_', '-')}: expected a share from 0 to 1, not {share!r}")
    _check_mistakes(answers)
    if sum(rates.values()) > 1.0 + 1e-9:
        raise refusal(f"the shares of failing requests add up to {sum(rates.values()):g}", "together at most 1")
    for name, seconds in {"latency": answers.latency, "retry-after": failing.retry_after}.items():
        if not 0.0 <= seconds < float("inf"):
            raise refusal(f"--{name}: expected seconds, not {seconds!r}")
    if not 0 <= port <= 65535:
        raise refusal(f"--port: expected 0 to 65535, not {port}")
    if concurrency_limit is not None and concurrency_limit < 1:
        raise refusal(f"--concurrency-limit: expected int >= 1, not {concurrency_limit}")


def _check_mistakes(answers: AnswerFlags) -> None:
    if answers.mistakes and answers.each_mistake:
        raise refusal("--mistakes and --each-mistake contradict each other", "give one of them")
    if (together := answers.each_mistake * most_kinds(answers.mistake_kinds)) > 1.0 + 1e-9:
        raise refusal(f"--each-mistake: the mistakes of one role add up to {together:g}", "together at most 1")


def _summary(report: Report) -> Iterator[str]:
    gone = f", {report.abandoned} for clients that had gone" if report.abandoned else ""
    refused = f", {report.refused} refused" if report.refused else ""
    yield f"requests   {report.requests}, {report.answered} answered{gone}{refused}; at most {report.at_once} at once"
    share = report.cached_tokens / report.prompt_tokens if report.prompt_tokens else 0.0
    repeated = f"{share:.0%} of them repeat the beginning of an earlier request"
    yield f"tokens     {report.prompt_tokens} of prompts ({repeated}), {report.completion_tokens} of answers"
    yield f"faults     {_counts(report.faults)}"
    yield f"mistakes   {_counts(report.mistakes)}"
    yield f"answers    {report.paid} paid for, {report.replayed} given again to a known Idempotency-Key"
    ids = ", ".join(report.ids_paid_twice) or "no request id"
    yield f"twice      {ids} was paid for twice; {report.prompts_paid_twice or 'no'} prompts were"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items(), key=lambda pair: -pair[1])) or "none"
