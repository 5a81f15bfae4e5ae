"""The receipt of an exported kernel, as JSON for scripts and as the module's first lines for people."""

from __future__ import annotations

import msgspec

from ksearch_async import __version__
from messages.calls import CallForm
from messages.codec import to_json
from messages.tasks import Candidate, Target, TaskSpec, TensorSpec
from messages.verdicts import Measured


class Winner(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that was found correct, with all facts for its receipt."""

    task: TaskSpec
    tensors: tuple[TensorSpec, ...]
    candidate: Candidate
    target: Target
    verdict: Measured
    device: str
    purpose: str
    measured_at: str
    """ISO 8601, UTC."""
    call: CallForm | None = None
    """Its call form; null: it takes tensors only."""
    isolation: tuple[str, ...] = ()
    """Layers that separated it from the judge and the host."""
    marks: tuple[str, ...] = ()
    """Remarks on the task."""
    run_id: str = ""
    """Empty if it was measured for the export."""
    round: int | None = None
    found_by: tuple[str, ...] = ()
    wall_s: float = 0.0
    lease_s: float = 0.0


def receipt_of(winner: Winner) -> str:
    """Return what `python FILE --receipt` prints: JSON for people."""
    task, candidate = winner.task, winner.candidate
    own = ("run_id", "round", "found_by", "measured_at", "purpose", "device", "target", "isolation", "marks")
    receipt = {
        "schema": "ksearch.receipt.v1",
        "ksearch_async": __version__,
        "task_name": task.name,
        "task_id": task.task_id,
        "candidate_id": candidate.candidate_id,
        "language": candidate.language,
        **{name: getattr(winner, name) for name in own},
        "tolerance": task.tolerance,
        "rules": task.rules,
        "wall_s": round(winner.wall_s, 3),
        "lease_s": round(winner.lease_s, 3),
        "verdict": msgspec.Raw(to_json(winner.verdict)),
    }
    return msgspec.json.format(msgspec.json.encode(receipt), indent=2).decode()


def header_of(winner: Winner, signature: str) -> str:
    """Return the module's docstring: where the kernel comes from and how to use it."""
    title = f"{winner.task.name}: a kernel ({winner.candidate.language}), exported by ksearch-async {__version__}."
    return "\n".join((_one_line(title), "", *facts_of(winner), "", f"    {signature}", "", _HOW_TO))


def facts_of(winner: Winner) -> tuple[str, ...]:
    """Return the kernel's origin and measurements, a line each."""
    verdict, target = winner.verdict, winner.target
    origin = f"run {winner.run_id}, round {winner.round}" if winner.run_id else "a source file"
    found = f": {' > '.join(winner.found_by)}" if winner.found_by else ""
    lines = [
        f"kernel     candidate {winner.candidate.candidate_id}, from {origin}{found}",
        f"task       {winner.task.name}, {winner.task.task_id}",
        *_speed_lines(verdict),
        f"checked    {len(verdict.checks)} calls on fresh inputs; largest error "
        f"{max((check.error_ratio for check in verdict.checks), default=0.0):.3g} of the tolerance",
        f"device     {winner.device}; built for {' '.join(filter(None, (target.arch, target.march)))} by "
        f"{target.toolchain}",
        f"measured   {winner.measured_at}, purpose {winner.purpose}; isolation: "
        f"{', '.join(winner.isolation) or 'not recorded'}",
        *(f"task       {mark}" for mark in winner.marks),
        *(f"note       {note}" for note in verdict.notes),
    ]
    return tuple(map(_one_line, lines))


_HOW_TO = """It takes dense tensors of just these shapes and dtypes, and just these numbers, and returns new tensors;
what it is given besides the arguments of the reference's `forward` is its state (`state_of(model)`). There is no
backward. The first call builds libraries where needed, and keeps them in the user's cache.

    python FILE --self-test     compares it with the reference that it was judged by, on random inputs
    python FILE --receipt       prints the verdict

The kernel was checked on inputs like the task's own; that is no proof."""


def _speed_lines(verdict: Measured) -> list[str]:
    interval = verdict.speedup_interval
    if not verdict.timed or interval is None:
        return ["speedup    not timed"]
    told = [
        f"speedup    {verdict.speedup_vs_reference:.2f}x the reference (eager PyTorch) "
        f"[{interval.low:.2f}, {interval.high:.2f}], 95 % interval over {verdict.pairs} interleaved pairs"
    ]
    baseline = verdict.baseline_interval
    if verdict.baseline and baseline is not None:
        said = f"{verdict.speedup_vs_baseline:.2f}x {verdict.baseline} [{baseline.low:.2f}, {baseline.high:.2f}]"
        told.append(f"baseline   {said}")
    return [
        *told,
        f"latency    {verdict.latency_us:.1f} us ({verdict.measure}), the reference "
        f"{verdict.reference_latency_us:.1f} us",
    ]


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())
