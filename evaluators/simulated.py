"""Builder and evaluator with scripted verdicts and durations: for tests, and for load without a device.

- `SimulatedBuilder(outcome_of=None, *, wall_s=0.0, cpu_s=0.0)`
- `SimulatedEvaluator(verdict_of, *, wall_s=0.0, cpu_s=0.0, lease_s=0.0)`
- `SIMULATED`, the target of simulated devices, and their script: `hashed_outcome`, `hashed_verdict`

Waiting is `anyio.sleep`, so a virtual clock skips it. CPU time is really used, in a worker thread.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import anyio
import anyio.to_thread

from evaluators.base import BuildReport, EvaluationReport
from messages.base import EvaluatorError
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Candidate, Target, content_hash
from messages.verdicts import DidNotBuild, Interval, Measured, Verdict, Wrong

DEVICE = "simulated"
SIMULATED = Target(arch="simulated", march="", toolchain="simulated", device=DEVICE)
"""Target of simulated devices. No host has it, so their scores are never compared with measured ones."""
_BLOCK = bytes(1 << 16)
_BROKEN, _WRONG = 0.08, 0.12
"""Shares of candidates that do not build, and of those that build and are wrong."""
_REFERENCE_US = 1000.0


class SimulatedBuilder:
    """A `Builder` that compiles nothing. The same candidate for the same target is cached the second time."""

    def __init__(
        self,
        outcome_of: Callable[[Candidate], DidNotBuild | None] | None = None,
        *,
        wall_s: float = 0.0,
        cpu_s: float = 0.0,
    ) -> None:
        self._outcome_of = outcome_of
        self._wall_s = wall_s
        self._cpu_s = cpu_s
        self._known: dict[str, Built | DidNotBuild] = {}

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Take the scripted time and return the scripted outcome."""
        begun = anyio.current_time()
        artifact_id = content_hash("simulated artifact", job.candidate.candidate_id, job.target.fingerprint)
        cached = artifact_id in self._known
        if not cached:
            await _spend(self._wall_s, self._cpu_s)
            refusal = self._outcome_of(job.candidate) if self._outcome_of else None
            self._known[artifact_id] = refusal or Built(artifact_id=artifact_id)
        return BuildReport(
            outcome=self._known[artifact_id],
            cached=cached,
            wall_s=anyio.current_time() - begun,
            cpu_s=0.0 if cached else self._cpu_s,
        )


class SimulatedEvaluator:
    """An `Evaluator` that runs nothing."""

    def __init__(
        self,
        verdict_of: Callable[[Candidate], Verdict],
        *,
        wall_s: float = 0.0,
        cpu_s: float = 0.0,
        lease_s: float = 0.0,
    ) -> None:
        self._verdict_of = verdict_of
        self._wall_s = wall_s
        self._cpu_s = cpu_s
        self._lease_s = lease_s
        self._lease = anyio.Lock()
        self._closed = False

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Take the scripted time and return the scripted verdict."""
        if self._closed:
            raise EvaluatorError("the evaluator was closed")
        begun = anyio.current_time()
        await _spend(self._wall_s, self._cpu_s)
        verdict = self._verdict_of(job.candidate)
        if self._lease_s:
            async with self._lease:
                await anyio.sleep(self._lease_s)
        wall_s = anyio.current_time() - begun
        return EvaluationReport(verdict=verdict, device=DEVICE, wall_s=wall_s, lease_s=self._lease_s)

    async def aclose(self) -> None:
        """Refuse further work."""
        self._closed = True


def hashed_outcome(candidate: Candidate) -> DidNotBuild | None:
    """Return why a candidate does not build, or None if it does; the same on every host, by its content's hash."""
    if _share(candidate, "fate") < _BROKEN:
        return DidNotBuild(reason="the simulated compiler refuses it")
    return None


def hashed_verdict(candidate: Candidate) -> Verdict:
    """Return a verdict derived from the content's hash: one in eight is wrong, the rest have 0.5x to 4x.

    Half of those are slower than 1.4x, one in ten is faster than 3.2x.
    """
    if _share(candidate, "fate") < _BROKEN + _WRONG:
        return Wrong(reason="the simulated device finds it wrong")
    speedup = 0.5 * 8.0 ** _share(candidate, "speed")
    return Measured(
        timed=True,
        latency_us=_REFERENCE_US / speedup,
        reference_latency_us=_REFERENCE_US,
        speedup_vs_reference=speedup,
        speedup_interval=Interval(low=0.99 * speedup, high=1.01 * speedup),
        pairs=1,
        notes=("simulated: drawn from the candidate's hash, nothing was run",),
    )


def _share(candidate: Candidate, what: str) -> float:
    """Return a pseudo-random number from 0 to 1 that depends on the candidate."""
    return int(content_hash("simulated", what, candidate.candidate_id)[:8], 16) / 2**32


async def _spend(wall_s: float, cpu_s: float) -> None:
    if cpu_s > 0:
        await anyio.to_thread.run_sync(_burn, cpu_s)
    await anyio.sleep(wall_s)


def _burn(cpu_s: float) -> None:
    """Use CPU time in this thread, without holding the interpreter's lock."""
    until = time.thread_time() + cpu_s
    while time.thread_time() < until:
        hashlib.sha256(_BLOCK).digest()
