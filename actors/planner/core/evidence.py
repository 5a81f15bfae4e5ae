"""What the planner's model is told of a verdict besides its one line: facts that stay in the state, bounded.

Where it was wrong, when it was killed, how fast it was on each workload, what the compiler said. Never expected values.
"""

from __future__ import annotations

import re

from messages.verdicts import Crashed, DidNotBuild, Rejected, TimedOut, Verdict, Wrong, workload_lines

MAX_LINES = 8
MAX_CHARS = 160
_KERNELS = 4
_KERNEL = re.compile(r"^kernel \S+: .+$", re.MULTILINE)


def evidence_of(verdict: Verdict) -> tuple[str, ...]:
    """Return what is known besides the outcome's line; at most `MAX_LINES` lines of `MAX_CHARS` characters."""
    return tuple(_short(line) for line in _lines(verdict)[:MAX_LINES])


def build_facts_of(log: str) -> tuple[str, ...]:
    """Return what a builder's log says of each kernel: registers, spills, shared memory; bounded.

    Builders of GPU languages print one line per kernel: `kernel NAME: 40 registers, 0 bytes spilled, …`.
    """
    kernels = [_short(line) for line in _KERNEL.findall(log)]
    left_out = len(kernels) - _KERNELS
    return (*kernels[:_KERNELS], f"({left_out} more kernels)") if left_out > 0 else tuple(kernels)


def _lines(verdict: Verdict) -> tuple[str, ...]:
    match verdict:
        case Wrong():
            return tuple(_wrong(verdict))
        case DidNotBuild(log=log):
            return tuple(line.strip() for line in log.splitlines() if "error" in line and line.strip())[:2]
        case Crashed(stage=stage) if stage:
            return (f"it crashed during {stage}",)
        case TimedOut():
            return (f"it was killed after {verdict.limit_s:g} s of {verdict.stage}",)
        case Rejected(rule=rule):
            return (f"the rule: {rule}",)
        case _:
            return workload_lines(verdict)


def _wrong(verdict: Wrong) -> list[str]:
    lines = []
    if verdict.elements:
        share = verdict.wrong_elements / verdict.elements
        where = f", the first at {list(verdict.first_wrong)}" if verdict.first_wrong else ""
        lines.append(f"{verdict.wrong_elements} of {verdict.elements} elements are wrong ({share:.1%}){where}")
    if verdict.patterns:
        lines.append(f"the wrong places: {', '.join(verdict.patterns)}")
    if verdict.family:
        lines.append(f"with inputs of the family {verdict.family!r}, largest error {verdict.max_abs_error:.3g}")
    return lines


def _short(line: str) -> str:
    return line if len(line) <= MAX_CHARS else f"{line[: MAX_CHARS - 2].rpartition(' ')[0] or line[: MAX_CHARS - 2]} …"
