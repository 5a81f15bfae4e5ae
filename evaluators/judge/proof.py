"""Fitness of a node: proof kernels that must pass and fail, and devices that stopped working.

A fault of a GPU shows in one process first: a runner is replaced with every candidate, a judge after every failure. The
device is at fault only if an unrelated process cannot use it either.

Proof kernels take the same path as candidates, through a real builder and a real evaluator, in a store of their own.
Not covered: a device that is slow or unsteady, a full disk at a later time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import anyio
import anyio.to_thread

from evaluators.base import Builder, Evaluator
from evaluators.languages import SPECS
from messages.base import EvaluatorError, Language
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Candidate, SourceFile, Target, TaskRules, TaskSpec
from messages.verdicts import DidNotBuild, Measured, Unstable, Verdict, Wrong, fate_of, reason_of

Ails: TypeAlias = Callable[[str], str]
"""Returns a device's fault; empty: none. Blocks."""
REST_S = 60.0
"""Seconds for which a sick device is not examined again."""


class SickDeviceError(EvaluatorError):
    """A device does not work for any caller."""

    def __init__(self, device: str, what: str) -> None:
        super().__init__(
            f"{device} is out of service: {what}; `nvidia-smi -q` may tell more, it is tried again", permanent=True
        )


class Health:
    """The known state of one device."""

    def __init__(self, device: str, ails: Ails | None) -> None:
        self._device = device
        self._ails = ails
        self._sick = ""
        self._looked_at = 0.0

    @property
    def is_resting(self) -> bool:
        """True if it was found sick and must not be tried yet."""
        return bool(self._sick) and anyio.current_time() - self._looked_at < REST_S

    async def require(self) -> None:
        """Check that it is in service."""
        if self._sick and not self.is_resting:
            await self._look()
        if self._sick:
            raise SickDeviceError(self._device, self._sick)

    async def blame(self, error: EvaluatorError) -> EvaluatorError:
        """Return the error to raise for a judge's failure: the device's fault, or its own."""
        await self._look()
        return SickDeviceError(self._device, self._sick) if self._sick else error

    async def _look(self) -> None:
        if self._ails is not None:
            self._sick = await anyio.to_thread.run_sync(self._ails, self._device)
            self._looked_at = anyio.current_time()


_TASK = TaskSpec(
    name="proof",
    source="kernelbench",
    # The known module calls the reference's own operators.
    rules=TaskRules(library_calls="allow"),
    text="""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return 2 * x + x.mean(dim=-1, keepdim=True)


def get_inputs():
    return [torch.rand(64, 8192)]


def get_init_inputs():
    return []
""",
)

_TRIES = 5
_PAUSE_S = 2.0
"""Pause before another try, since a device may be in use for a moment, by its neighbours' proofs for example."""


async def prove_builder(builder: Builder, language: Language, target: Target) -> None:
    """Check that a builder builds a correct program, and refuses a text that is not a program.

    Raises:
        EvaluatorError: it does not; names what it did instead.
    """
    await _build(builder, _candidate(language, SPECS[language].proof), target)
    outcome = (await builder.build(_build_job(_candidate(language, "this is (no program\n"), target))).outcome
    if not isinstance(outcome, DidNotBuild):
        raise EvaluatorError(f"a {language} text that is no program was built: this compiler proves nothing")


async def prove_evaluator(builder: Builder, evaluator: Evaluator, language: Language, target: Target) -> None:
    """Check that an evaluator measures a correct kernel, and finds a wrong one wrong.

    Raises:
        EvaluatorError: it does not; names what it did instead.
    """
    spec = SPECS[language]
    for number in range(_TRIES):
        await anyio.sleep(_PAUSE_S if number else 0)
        right = await _judge(builder, evaluator, _candidate(language, spec.proof), target)
        if not isinstance(right, Unstable):
            break
    if not isinstance(right, Measured):
        raise EvaluatorError(f"a right {language} kernel was judged {_say(right)}")
    wrong = await _judge(builder, evaluator, _candidate(language, spec.proof.replace(spec.proof_part, "x")), target)
    if not isinstance(wrong, Wrong):
        raise EvaluatorError(f"a wrong {language} kernel was judged {_say(wrong)}: this judge proves nothing")


async def _judge(builder: Builder, evaluator: Evaluator, candidate: Candidate, target: Target) -> Verdict:
    built = await _build(builder, candidate, target)
    job = EvaluateCandidate(
        job_id="proof",
        run_id="proof",
        task=_TASK,
        candidate=candidate,
        artifact_id=built.artifact_id,
        target=target,
    )
    return (await evaluator.evaluate(job)).verdict


async def _build(builder: Builder, candidate: Candidate, target: Target) -> Built:
    outcome = (await builder.build(_build_job(candidate, target))).outcome
    if isinstance(outcome, DidNotBuild):
        raise EvaluatorError(f"a right {candidate.language} kernel does not build here: {outcome.reason}")
    return outcome


def _build_job(candidate: Candidate, target: Target) -> BuildCandidate:
    return BuildCandidate(job_id="proof", run_id="proof", candidate=candidate, target=target)


def _candidate(language: Language, text: str) -> Candidate:
    file = SourceFile(path=f"main{SPECS[language].suffixes[0]}", text=text)
    entry_point = "ModelNew" if language == "python" else "ksearch_run"
    return Candidate(language=language, entry_point=entry_point, files=(file,))


def _say(verdict: Verdict) -> str:
    reason = reason_of(verdict)
    return f"{fate_of(verdict)}: {reason}" if reason else fate_of(verdict)
