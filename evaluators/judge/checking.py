"""Is a candidate correct? Calls on several families of data, each output against the reference in float64.

A checking judge has low priority: it computes while another judge times, on what that one leaves free.
"""

from __future__ import annotations

import msgspec
import torch

from evaluators.judge.bench import Bench, Calls
from evaluators.judge.candidate import CandidateFailedError, CandidateSide
from evaluators.judge.compare import Allowed
from evaluators.judge.families import CHECKS, FEW_CHECKS, CheckData
from evaluators.judge.protocol import Artifact, Judged, Passed
from evaluators.judge.wrong import WrongOutputError, say_wrong
from messages.tasks import TaskSpec
from messages.verdicts import CallCheck, Crashed


class Checker:
    """Checks candidates of one task, one after the other."""

    def __init__(self, bench: Bench, task: TaskSpec, *, is_slow: bool) -> None:
        """Prepare.

        Args:
            bench: the task's.
            task: for its tolerances.
            is_slow: candidates are so slow here that each family of data is tried once only.
        """
        self._bench = bench
        self._is_slow = is_slow
        self._data = CheckData(bench.problem, task.tolerance, families=FEW_CHECKS if is_slow else CHECKS)

    def check(self, artifact: Artifact) -> Passed | Judged:
        """Say that it passed, or what is wrong with it."""
        with self._bench.side(artifact) as side:
            try:
                return self._passed(side)
            except WrongOutputError as wrong:
                return Judged(verdict=wrong.verdict)
            except CandidateFailedError as failure:
                if not (isinstance(failure.verdict, Crashed) and side.segfaulted):
                    return Judged(verdict=failure.verdict)
                crashed = failure.verdict
        return Judged(verdict=self._explain_segfault(artifact, crashed))

    def _passed(self, side: CandidateSide) -> Passed:
        calls = Calls(self._bench, side)
        checks: list[CallCheck] = []
        seeds: list[int] = []
        side.load()
        for data in self._data.sets():
            seeds.append(data.seed)
            calls.on(data)
            outputs = self._bench.buffers.outputs.tensors
            found = [
                _check_output(data.family, name, outputs[index], data.expected[index], data.allowed[index])
                for index, name in enumerate(self._bench.output_names)
            ]
            checks.append(max(found, key=lambda check: check.error_ratio))
        return Passed(checks=tuple(checks), reference_dtype=self._data.reference_dtype, notes=tuple(self._notes(seeds)))

    def _notes(self, seeds: list[int]) -> list[str]:
        notes = [f"seeds of the checks: {', '.join(map(str, seeds))}"]
        notes.extend(
            f"not checked on {family} inputs: the reference is not finite there" for family in self._data.skipped
        )
        if self._is_slow:
            notes.append(f"checked in {len(seeds)} calls, one per family of data: each takes long here")
        if not self._bench.problem.trains:
            notes.append("the reference runs in eval mode: in training mode it is random")
        return notes

    def _explain_segfault(self, artifact: Artifact, crashed: Crashed) -> Crashed:
        """Try once more with inputs that may be written to: does that cure it?"""
        with self._bench.side(artifact, private_inputs=True) as side:
            calls = Calls(self._bench, side)
            try:
                side.load()
                for data in self._data.sets():
                    calls.on(data)
            except (CandidateFailedError, WrongOutputError):
                return crashed
        reason = f"{crashed.reason}: it writes to its inputs, which are mapped read-only"
        return msgspec.structs.replace(crashed, reason=reason)


def _check_output(family: str, name: str, out: torch.Tensor, expected: torch.Tensor, allowed: Allowed) -> CallCheck:
    """Compare one output of a checked call.

    Raises:
        WrongOutputError: it is wrong.
    """
    wrong, worst, ratio = allowed.errors(out, expected)
    if bool(wrong.any()):
        raise WrongOutputError(say_wrong(family, name, out, expected, wrong, worst))
    return CallCheck(family=family, max_abs_error=worst, error_ratio=ratio)
