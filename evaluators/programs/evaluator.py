"""Builder and evaluator of plain Python programs.

- `ProgramBuilder().build(job: BuildCandidate) -> BuildReport`: nothing is compiled, the program is its own artifact
- `ProgramEvaluator(slots=2, environment=…).evaluate(job: EvaluateCandidate) -> EvaluationReport`
- `await evaluator.aclose()`
"""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from evaluators.base import BuildReport, EvaluationReport
from evaluators.programs.host import Host, Outcome, start_host
from evaluators.programs.task import probe_interpreter
from messages.base import EvaluatorError
from messages.commands import BuildCandidate, EvaluateCandidate
from messages.events import Built
from messages.tasks import Scorer
from messages.verdicts import Crashed, DidNotBuild, Rejected, Scored, TimedOut, Verdict

_STAGE = "evaluate"
_SIGKILL = 9


class ProgramBuilder:
    """A `Builder` that has nothing to do: what does not compile is found where the program is run."""

    async def build(self, job: BuildCandidate) -> BuildReport:
        """Return the candidate as its own artifact."""
        await checkpoint()
        built = Built(artifact_id=job.candidate.candidate_id)
        return BuildReport(outcome=built, cached=False, wall_s=0.0, cpu_s=0.0)


class ProgramEvaluator:
    """An `Evaluator` that has programs scored by the task's own evaluator file, each in a process of its own.

    One host process per evaluator file imports it, and forks for every candidate. It is started when first needed, and
    anew when it died. All of it must run on one event loop and its thread.
    """

    def __init__(self, *, slots: int = 2, environment: dict[str, str]) -> None:
        """Make an evaluator; it starts nothing yet.

        Args:
            slots: programs scored at once.
            environment: what evaluator and programs see; the caller leaves out what is secret.
        """
        self._turns = anyio.Semaphore(slots)
        self._environment = environment
        self._hosts: dict[str, Host] = {}
        self._starting = anyio.Lock()
        self._device = probe_interpreter().device

    async def evaluate(self, job: EvaluateCandidate) -> EvaluationReport:
        """Have one program scored.

        Raises:
            EvaluatorError: the evaluator file is at fault, or this host.
        """
        scorer = job.task.scorer
        if scorer is None:
            raise EvaluatorError(f"task {job.task.name!r} has no evaluator file", permanent=True)
        async with self._turns:
            begun = anyio.current_time()
            host = await self._host(scorer)
            outcome = await host.score(job.candidate, scorer)
            verdict = _verdict(outcome, scorer)
            wall_s = anyio.current_time() - begun
        return EvaluationReport(verdict=verdict, device=self._device, wall_s=wall_s, lease_s=0.0)

    async def aclose(self) -> None:
        """End all processes, also those at work."""
        hosts = list(self._hosts.values())
        self._hosts.clear()
        with anyio.CancelScope(shield=True):
            for host in hosts:
                await host.end()

    async def _host(self, scorer: Scorer) -> Host:
        async with self._starting:
            host = self._hosts.get(scorer.digest)
            if host is not None and not host.is_alive:
                del self._hosts[scorer.digest]
                await host.end()
                host = None
            if host is None:
                host = self._hosts[scorer.digest] = await start_host(scorer, self._environment)
            return host


def _verdict(outcome: Outcome, scorer: Scorer) -> Verdict:
    """Say what the end of a candidate's process means.

    Raises:
        EvaluatorError: the evaluator file is at fault.
    """
    if outcome.how == "timed_out":
        reason = f"evaluate() had not returned after {scorer.timeout_s:g} s"
        return TimedOut(reason=reason, stage=_STAGE, limit_s=scorer.timeout_s)
    report = outcome.report
    if report is None:
        return Crashed(reason=_death(outcome), stage=_STAGE, log=outcome.log)
    if report.unusable:
        raise EvaluatorError(f"evaluator file {scorer.path!r} cannot be used: {report.unusable}", permanent=True)
    if report.syntax:
        return DidNotBuild(reason=report.syntax)
    if report.error:
        over = f" (more than {scorer.memory_bytes / 2**30:g} GiB)" if report.out_of_memory else ""
        return Crashed(reason=f"it raised {report.error}{over}", stage=_STAGE, log=report.trace or outcome.log)
    if report.score is None:
        return Rejected(reason=report.no_score, rule="every program gets a score")
    notes = tuple(f"{name}: {text}" for name, text in report.notes.items())
    return Scored(score=report.score, metrics=report.metrics, notes=notes)


def _death(outcome: Outcome) -> str:
    if outcome.signal is None:
        return f"its process ended with exit code {outcome.exit_code} before evaluate() returned"
    hint = " (out of memory?)" if outcome.signal == _SIGKILL else ""
    return f"its process died of signal {outcome.signal}{hint}"
