"""What nodes do, by role: coders ask a model, builders compile, evaluators judge. Each says what came of every job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import structlog
from anyio.abc import TaskStatus

from actors.board import Queues
from actors.builder.actor import serve_builds
from actors.bus.base import Bus
from actors.coder.actor import serve_writes
from actors.evaluator.actor import serve_evaluations
from actors.llm.base import Answer, Model, Request
from actors.member import Member
from evaluators.base import Builder, BuildReport, EvaluationReport, Evaluator
from ksearch_async.devices import Device
from messages.base import Language
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.errors import ConfigError, EvaluatorError
from messages.events import Built
from messages.presence import Served
from messages.tasks import Target
from messages.verdicts import Measured, Scored, Verdict, fate_of, reason_of

_REASON_LENGTH = 120

log = structlog.get_logger(__name__)


class Coding:
    """Coders write with one model."""

    def __init__(self, model: Model) -> None:
        self._model = _ToldModel(model)

    async def prove(self, member: Member) -> tuple[Served, ...]:  # noqa: ARG002 - the first job shows it
        """Prove nothing: asking the model costs money, and a coder whose model fails keeps away by itself."""
        await anyio.lowlevel.checkpoint()
        return ()

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """See `ksearch_async.nodes.Work.serve`."""
        slots = member.presence.slots
        await serve_writes(bus, self._model, queues=queues, slots=slots, member=member, task_status=task_status)


class Building:
    """Builders compile for the languages that their host can do."""

    def __init__(self, device: Device, artifacts: Path, languages: tuple[Language, ...]) -> None:
        self._device = device
        self._artifacts = artifacts
        self._languages = languages

    async def prove(self, member: Member) -> tuple[Served, ...]:
        """Build known kernels.

        Raises:
            EvaluatorError: in no language.
        """
        return await _proved(self._device, self._languages, self._device.prove_builder, self._artifacts, member)

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """See `ksearch_async.nodes.Work.serve`."""
        builder = _ToldBuilder(self._device.make_builder(bus, self._artifacts))
        slots = member.presence.slots
        await serve_builds(bus, builder, queues=queues, slots=slots, member=member, task_status=task_status)


class Evaluating:
    """Evaluators judge on one device."""

    def __init__(self, device: Device, artifacts: Path, languages: tuple[Language, ...]) -> None:
        self._device = device
        self._artifacts = artifacts
        self._languages = languages

    async def prove(self, member: Member) -> tuple[Served, ...]:
        """Build, check and time known kernels, and find a wrong one wrong.

        Raises:
            EvaluatorError: in no language.
        """
        return await _proved(self._device, self._languages, self._device.prove_evaluator, self._artifacts, member)

    async def serve(
        self, bus: Bus, queues: Queues, member: Member, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """See `ksearch_async.nodes.Work.serve`."""
        slots = member.presence.slots
        evaluator = _ToldEvaluator(self._device.make_evaluator(bus, self._artifacts, slots=slots))
        try:
            await serve_evaluations(bus, evaluator, queues=queues, slots=slots, member=member, task_status=task_status)
        finally:
            await evaluator.aclose()


async def _proved(
    device: Device,
    languages: tuple[Language, ...],
    prove: Callable[[Language, Target, Path], Awaitable[None]],
    artifacts: Path,
    member: Member,
) -> tuple[Served, ...]:
    """Return what passes its proof, of the languages asked for, or of all that the host has.

    Raises:
        EvaluatorError: nothing does; says why not, language by language.
    """
    served, failures = [], []
    for language in languages or device.languages:
        begun = anyio.current_time()
        member.proving(f"a known {language} kernel")
        try:
            target = await device.probe(language)
            await prove(language, target, artifacts)
        except (EvaluatorError, ConfigError) as error:
            log.warning("does not serve a language", language=language, reason=str(error))
            failures.append(f"{language}: {error}")
        else:
            seconds = round(anyio.current_time() - begun, 1)
            log.info("proved", language=language, arch=target.arch, device=target.device, seconds=seconds)
            served.append(Served(language=language, target=target))
    if not served:
        raise EvaluatorError("; ".join(failures), permanent=True)
    return tuple(served)


class _ToldModel:
    """Says what a model was asked and how long it took."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def complete(self, request: Request) -> Answer:
        """See `Model.complete`."""
        answer = await self._model.complete(request)
        tokens = answer.usage.completion_tokens
        log.info("answered", seconds=round(answer.latency_s, 2), model=answer.model, tokens=tokens)
        return answer

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        await self._model.aclose()


class _ToldBuilder:
    """Says what was built."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder

    async def build(self, job: BuildCandidate) -> BuildReport:
        """See `Builder.build`."""
        report = await self._builder.build(job)
        outcome = report.outcome
        what = "built" if isinstance(outcome, Built) else shortened_reason(f"did not build: {outcome.reason}")
        log.info(what, seconds=round(report.wall_s, 2), cached=report.cached)
        return report


class _ToldEvaluator:
    """Says what was judged."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """See `Evaluator.evaluate`."""
        report = await self._evaluator.evaluate(job)
        log.info("evaluated", seconds=round(report.wall_s, 2), verdict=verdict_words(report.verdict))
        return report

    async def aclose(self) -> None:
        """See `Evaluator.aclose`."""
        await self._evaluator.aclose()


def verdict_words(verdict: Verdict) -> str:
    """Say what a verdict is in a few words: `measured 1.80x`, `wrong: tail columns`."""
    if isinstance(verdict, Measured):
        return f"measured {verdict.speedup_vs_reference:.2f}x" if verdict.speedup_vs_reference else "correct, not timed"
    if isinstance(verdict, Scored):
        return f"scored {verdict.score:g}"
    return shortened_reason(f"{fate_of(verdict)}: {reason_of(verdict)}")


def shortened_reason(text: str) -> str:
    """Return one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH else f"{line[: _REASON_LENGTH - 1]}…"
