"""Builder and evaluator without compiler and device: scripted verdicts after scripted times. For tests and load work.

They keep the contract of their real siblings; what they cannot do is find out anything about a candidate.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import anyio

from evaluators.base import BuildReport, EvaluationReport
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Candidate, content_hash
from messages.verdicts import DidNotBuild, Verdict

_BURN = "import sys, time\nend = time.process_time() + float(sys.argv[1])\nwhile time.process_time() < end: pass"


class SimulatedBuilder:
    """Accepts every candidate, or refuses those that `refuse` gives a verdict for."""

    def __init__(
        self, refuse: Callable[[Candidate], DidNotBuild | None] = lambda _: None, *, wall_s: float = 0.0
    ) -> None:
        self._refuse = refuse
        self._wall_s = wall_s

    async def build(self, job: BuildCandidate) -> BuildReport:
        """See `evaluators.base.Builder`."""
        await anyio.sleep(self._wall_s)
        artifact_id = content_hash("simulated", job.candidate.candidate_id, job.target.fingerprint)
        outcome = self._refuse(job.candidate) or Built(artifact_id=artifact_id)
        return BuildReport(outcome=outcome, cached=False, wall_s=self._wall_s, cpu_s=0.0)


class SimulatedEvaluator:
    """Gives the verdict of `judge` after `cpu_s` of real work in a process of its own and `wall_s` of waiting."""

    def __init__(
        self,
        judge: Callable[[Candidate], Verdict],
        *,
        wall_s: float = 0.0,
        cpu_s: float = 0.0,
        device: str = "simulated",
    ) -> None:
        self._judge = judge
        self._wall_s = wall_s
        self._cpu_s = cpu_s
        self._device = device

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """See `evaluators.base.Evaluator`."""
        began = anyio.current_time()
        if self._cpu_s:
            command = [sys.executable, "-I", "-S", "-c", _BURN, str(self._cpu_s)]
            await anyio.run_process(command, stdin=subprocess.DEVNULL)
        await anyio.sleep(self._wall_s)
        wall_s = anyio.current_time() - began
        return EvaluationReport(
            verdict=self._judge(job.candidate), device=self._device, wall_s=wall_s, lease_s=self._wall_s
        )

    async def aclose(self) -> None:
        """Do nothing: no process outlives its evaluation."""
