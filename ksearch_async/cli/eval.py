"""`ksearch eval`: builds, checks and times source files without a search."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

import anyio
import msgspec
from cyclopts import Parameter, validators

from evaluators.languages.triton.ahead import AheadReport, check_architecture, compile_ahead
from evaluators.tasks import find_competition, reference_candidate
from evaluators.tasks.defaults import Competition
from ksearch_async.cli import exits
from ksearch_async.cli.flags import NO_EVALUATION_FLAGS, EvaluationFlags, JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.evaluation.candidates import read_kernel
from ksearch_async.evaluation.judging import open_judge
from ksearch_async.evaluation.settings import Evaluation, EvaluationSettings, TaskLike, task_of
from ksearch_async.fleet.workers import is_task, open_workers
from ksearch_async.follow.logs import configure_logs
from ksearch_async.runs.candidates import read_provenance
from ksearch_async.runs.folder import find_run
from ksearch_async.settings.run_config import ProgramSettings, WorkerSettings, runs_dir_or_default
from ksearch_async.views.terminal import note, put, put_json, put_lines
from ksearch_async.views.text import TITLES, headline, kernel_rows, left_out, workload_table
from messages.base import Language
from messages.commands import Purpose
from messages.tasks import Candidate, TaskSpec
from messages.verdicts import (
    LIBRARY_CALL_RULE,
    Crashed,
    DidNotBuild,
    Interval,
    Measured,
    Outpaced,
    Quarantined,
    Rejected,
    Scored,
    TimedOut,
    TimedWorkload,
    Unstable,
    Verdict,
    WorkloadProfile,
    Wrong,
    fate_of,
    printed_by,
    reason_of,
    score_text,
)

_INDENT = " " * 11


def profile_objects(profile: Sequence[WorkloadProfile]) -> list[dict[str, Any]]:
    """Return what `--json` prints of a profile: one object per workload."""
    return [msgspec.to_builtins(one) | {"idle_share": one.idle_share, "own_share": one.own_share} for one in profile]


def profile_table(profile: Sequence[WorkloadProfile]) -> list[str]:
    """Return what is printed of what is known: a line and a table for each workload."""
    return [line for one in profile for line in _lines(one)]


def _lines(profile: WorkloadProfile) -> Iterator[str]:
    yield f"profile    {headline(profile)}"
    rows = [TITLES, *kernel_rows(profile)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for *numbers, name in rows:
        cells = [cell.rjust(width) for cell, width in zip(numbers, widths, strict=False)]
        yield _INDENT + "  ".join([*cells, name])
    if rest := left_out(profile):
        yield _INDENT + rest


def as_object(evaluation: Evaluation) -> dict[str, Any]:
    """Return what `--json` prints of an evaluation."""
    verdict = evaluation.verdict
    told: dict[str, Any] = {"verdict": evaluation.fate, "reason": evaluation.reason, "timed": False}
    if isinstance(verdict, Scored):
        told |= {"score": verdict.score, "metrics": verdict.metrics}
    elif isinstance(verdict, Measured):
        told |= {"checked_calls": len(verdict.checks), "deterministic": verdict.deterministic, "notes": verdict.notes}
        told["flags"] = verdict.flags
        told |= _times(verdict)
    elif isinstance(verdict, Outpaced | Unstable | Quarantined):
        told["speedup_interval"] = _pair(verdict.speedup_interval)
    if isinstance(verdict, Measured | Outpaced) and verdict.workloads:
        told["workloads"] = [_times(one) for one in verdict.workloads]
    elif isinstance(verdict, Wrong | Crashed | TimedOut | Rejected | Unstable | Quarantined) and verdict.workload:
        told["workload"] = verdict.workload
    if printed := printed_by(verdict):
        told["printed"] = printed
    if evaluation.profile:
        told["profile"] = profile_objects(evaluation.profile)
    return told | {
        "device": evaluation.device,
        "isolation": evaluation.isolation,
        "marks": evaluation.marks,
        "task": evaluation.task,
        "language": evaluation.language,
        "candidate_id": evaluation.candidate_id,
        "purpose": evaluation.purpose,
        "seconds": round(evaluation.seconds, 3),
        "build_s": round(evaluation.build_s, 3),
        "judge_s": round(evaluation.judge_s, 3),
    }


def _times(timed: Measured | TimedWorkload) -> dict[str, Any]:
    """Return the figures of a candidate, or of one of its workloads; none if it was not timed."""
    interval, told = timed.speedup_interval, dict[str, Any]()
    if interval is None or (isinstance(timed, Measured) and not timed.timed):
        return told
    told |= {"timed": True, "measure": timed.measure} if isinstance(timed, Measured) else {"name": timed.name}
    told |= {
        "pairs": timed.pairs,
        "latency_us": timed.latency_us,
        "reference_latency_us": timed.reference_latency_us,
        "speedup_vs_reference": timed.speedup_vs_reference,
        "speedup_interval": _pair(interval),
    }
    baseline = {"baseline": timed.baseline} if isinstance(timed, Measured) else {}
    if timed.baseline_interval is not None and baseline != {"baseline": ""}:
        told |= baseline | {
            "baseline_latency_us": timed.baseline_latency_us,
            "speedup_vs_baseline": timed.speedup_vs_baseline,
            "baseline_interval": _pair(timed.baseline_interval),
        }
    return told


def _pair(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def lines_of(evaluation: Evaluation) -> list[str]:
    """Return what is printed of an evaluation, line by line."""
    verdict = evaluation.verdict
    told = _lines_of(verdict, evaluation.device)
    told += printed_lines(verdict)
    told += [f"warning    {mark}" for mark in evaluation.marks]
    told += profile_table(evaluation.profile)
    if evaluation.isolation:
        told.append(f"isolation  {', '.join(evaluation.isolation)}")
    judged = f", checking and timing {evaluation.judge_s:.1f} s" if evaluation.judge_s else ""
    told.append(f"took       {evaluation.seconds:.1f} s: building {evaluation.build_s:.1f} s{judged}")
    return told


def printed_lines(verdict: Verdict) -> list[str]:
    """Return what a candidate printed that did not crash, each line behind a margin."""
    lines = printed_by(verdict).strip().splitlines()
    return [f"{'printed' if not at else '':<11}| {line}" for at, line in enumerate(lines)]


def _lines_of(verdict: Verdict, device: str) -> list[str]:
    if isinstance(verdict, Scored):
        metrics = [f"           {name} = {value}" for name, value in verdict.metrics.items()]
        return ["verdict    scored", f"score      {score_text(verdict.score)}", *metrics, *verdict.notes]
    if not isinstance(verdict, Measured):
        return _failed_lines(verdict)
    interval = verdict.speedup_interval
    if not verdict.timed or interval is None:
        return _untimed_lines(verdict, device)
    over = f", geometric mean over {len(verdict.workloads)} workloads" if verdict.workloads else ""
    return [
        f"verdict    measured: correct in {len(verdict.checks)} checked calls",
        f"speedup    {verdict.speedup_vs_reference:.2f}x the reference {_said(interval)} "
        f"(95 % interval{over}, {verdict.pairs} pairs)",
        *_baseline_lines(verdict),
        f"latency    {verdict.latency_us:.1f} us, the reference {verdict.reference_latency_us:.1f} us; {device}",
        *workload_table(verdict.workloads),
        *_common_lines(verdict, verdict.notes),
    ]


def _failed_lines(verdict: Verdict) -> list[str]:
    log = verdict.log.rstrip() if isinstance(verdict, Crashed | DidNotBuild) else ""
    told = [f"verdict    {fate_of(verdict)}", f"reason     {reason_of(verdict)}"]
    if more := log.removeprefix(reason_of(verdict)).strip("\n"):
        told += [f"  {line}" for line in more.splitlines()]
    if isinstance(verdict, Outpaced | Unstable | Quarantined) and verdict.speedup_interval.high > 0:
        told.append(f"speedup    {_said(verdict.speedup_interval)} (95 % interval; it gives no credit)")
    if isinstance(verdict, Outpaced):
        told += workload_table(verdict.workloads)
    return told


def hint_on(verdict: Verdict) -> str:
    """Return advice on a verdict for the person who asked for it; empty if only another source helps."""
    if isinstance(verdict, Rejected) and verdict.rule == LIBRARY_CALL_RULE:
        return "--library-calls allow permits it, --allow-library NAME what is named"
    if isinstance(verdict, Unstable):
        return "it was found correct; try again when less else runs here"
    return ""


def _baseline_lines(verdict: Measured) -> list[str]:
    if not verdict.baseline or verdict.baseline_interval is None:
        return []
    return [
        f"baseline   {verdict.speedup_vs_baseline:.2f}x {verdict.baseline} {_said(verdict.baseline_interval)}, "
        f"which takes {verdict.baseline_latency_us:.1f} us"
    ]


def _untimed_lines(verdict: Measured, device: str) -> list[str]:
    why_not = next((note for note in verdict.notes if note.startswith("not timed")), "not timed")
    return [
        f"verdict    measured: correct, {why_not}",
        f"checks     {len(verdict.checks)} calls; {device}",
        *_common_lines(verdict, [note for note in verdict.notes if note != why_not]),
    ]


def _common_lines(verdict: Measured, notes: Sequence[str]) -> list[str]:
    same = {
        None: (),
        True: ("bits       the same in two calls on the same inputs",),
        False: ("bits       differ between two calls on the same inputs, within the tolerance",),
    }
    return [
        *same[verdict.deterministic],
        *(f"note       {note}" for note in notes),
        *(f"flag       {flag}" for flag in verdict.flags),
    ]


def _said(interval: Interval) -> str:
    return f"[{interval.low:.2f}, {interval.high:.2f}]"


def repeats_object(repeats: Sequence[Evaluation]) -> dict[str, Any]:
    """Return what `--json --repeat N` prints of the evaluations of one source."""
    first = next((one for one in repeats if not one.good), repeats[0])
    told: dict[str, Any] = {"verdict": first.fate, "reason": first.reason}
    found = [one.speedup_vs_reference for one in repeats if one.speedup_vs_reference is not None]
    if found:
        told["speedups"] = {
            "median": median(found),
            "lowest": min(found),
            "highest": max(found),
            "spread": _spread(found),
            "intervals_that_cover_the_median": _covering(repeats, median(found)),
        }
    return told | {"repeats": [as_object(one) for one in repeats]}


def repeats_lines(repeats: Sequence[Evaluation]) -> list[str]:
    """Return what `--repeat N` prints below the last evaluation of a source."""
    found = [one.speedup_vs_reference for one in repeats if one.speedup_vs_reference is not None]
    others = [one.fate for one in repeats if one.speedup_vs_reference is None]
    told = [f"repeats    {len(repeats)} in fresh processes: {', '.join([*(f'{x:.2f}x' for x in found), *others])}"]
    if len(found) > 1:
        middle = median(found)
        told.append(
            f"spread     {100 * _spread(found):.1f} % from lowest to highest; the median is {middle:.2f}x, "
            f"which {_covering(repeats, middle)} of {len(found)} intervals cover"
        )
    return told


def _spread(speedups: Sequence[float]) -> float:
    return (max(speedups) - min(speedups)) / median(speedups)


def _covering(repeats: Sequence[Evaluation], value: float) -> int:
    intervals = [one.speedup_interval for one in repeats]
    return sum(1 for interval in intervals if interval is not None and interval[0] <= value <= interval[1])


Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def eval_command(
    task: str,
    /,
    *sources: Path,
    flags: EvaluationFlags = NO_EVALUATION_FLAGS,
    repeat: Count = 1,
    purpose: Purpose | None = None,
    profile: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    role: Literal["candidate", "baseline"] = "candidate",
    compile_for: str | None = None,
    score_with: str | None = None,
    eval_timeout: float = ProgramSettings().timeout_s,
    eval_memory: float = ProgramSettings().memory_gib,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Build, check and time source files for a task, or measure a run's best kernel once more.

    Args:
        task: A bundled problem's name, a problem file in KernelBench's format, a folder with a task.toml, or SOURCE:…;
            with --score-with a program. Without sources: a run's id, its folder, or `latest`.
        sources: Source files, or a run's `best` folder (or one of its `candidates/`); for FlashInfer-Bench's tasks also
            a solution's JSON. One judge process evaluates all of them.
        flags: Settings of the evaluation.
        repeat: Number of evaluations of each source, in fresh processes; the spread of the results is printed.
        purpose: `screen`: the measurement of every candidate in a search; `confirm`: the longer one of a new best.
            [default: screen; confirm for the best of a run]
        profile: On a GPU: also list the kernels that one measured call launches, with their times and occupancies.
        role: `baseline`: the source is a program to compare with; any library is allowed, and so are tasks on which
            trivial answers pass. Without a source, the task's own reference is measured.
        compile_for: Only compile the kernels of a Triton program for this architecture (sm_90, ...). Needs no GPU, and
            checks neither results nor speed.
        score_with: The task is a Python program, and the `evaluate(program_path)` of this file scores it.
        eval_timeout: Seconds that scoring a program may take.
        eval_memory: Gibibytes that a program may take.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object per source, each on a line as soon as its evaluation ends.
    """
    configure_logs()
    purpose = purpose or ("screen" if sources else "confirm")
    settings = flags.settings()
    settings |= EvaluationSettings(purpose=purpose, eval_timeout=eval_timeout, eval_memory=eval_memory)
    if profile:
        settings["profile"] = True
    if score_with is not None:
        settings["score_with"] = score_with
    if role == "baseline":
        settings["role"] = role
    given, asked = _meant(task, sources, settings, runs_dir)
    if compile_for is not None:
        return _compile(task_of(given, settings), asked, flags.language, compile_for, as_json=as_json)
    is_named = score_with is None and (role == "baseline" or bool(sources))
    competition = find_competition(task) if is_named else None
    shown = Shown(as_json=as_json, competition=competition)
    found = anyio.run(_evaluated, given, asked, settings, repeat, shown)
    return exits.FOUND if all(one.good for repeats in found for one in repeats) else exits.NOT_FOUND


def _meant(
    task: str, sources: Sequence[Path], settings: EvaluationSettings, runs_dir: Path | None
) -> tuple[TaskLike, Sequence[Path | Candidate]]:
    """Return the task, and what is evaluated against it; of a run its best."""
    if "role" in settings:
        spec = task_of(task, settings)
        return spec, sources or [reference_candidate(spec)]
    if sources:
        return task, sources
    if is_task(task):
        raise refusal(f"no source file is given for {task!r}", "ksearch eval TASK SOURCE, or ksearch eval RUN")
    best = read_provenance(find_run(task, runs_dir_or_default(runs_dir)))
    return best.task, [best.candidate]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """How evaluations are printed."""

    as_json: bool
    competition: Competition | None
    """The competition that ranks submissions to this task; null: there is none."""


async def _evaluated(
    task: TaskLike, sources: Sequence[Path | Candidate], settings: EvaluationSettings, repeat: int, shown: Shown
) -> list[list[Evaluation]]:
    language = settings.get("language")
    spec = task_of(task, settings)
    if spec.source != "program":  # unreadable sources are refused before any evaluation
        for source in sources:
            read_kernel(source, language, spec)
    found: list[list[Evaluation]] = [[] for _ in sources]
    for number in range(repeat):
        async with open_judge(spec, **settings) as judge:
            for source, repeats in zip(sources, found, strict=True):
                which = f"{_name_of(source)}{f', {number + 1} of {repeat}' if repeat > 1 else ''}"
                repeats.append(await judge.evaluate(source, on_stage=partial(_say, which)))
                if number < repeat - 1:
                    continue
                if shown.as_json:
                    put_json(_as_object(source, repeats, shown.competition))
                else:
                    _print(source, repeats, shown.competition, several=len(sources) > 1)
    return found


def _say(which: str, stage: str) -> None:
    note(f"{which}: {stage} ...")


def _print(
    source: Path | Candidate, repeats: Sequence[Evaluation], competition: Competition | None, *, several: bool
) -> None:
    told = [f"source     {_name_of(source)}"] if several else []
    told += lines_of(repeats[-1])
    if competition is not None:
        told += competition.lines(repeats[-1].verdict)
    if len(repeats) > 1:
        told += repeats_lines(repeats)
    put_lines(told)
    if hint := hint_on(repeats[-1].verdict):
        note(f"hint: {hint}")
    if several:
        put()


def _as_object(
    source: Path | Candidate, repeats: Sequence[Evaluation], competition: Competition | None
) -> dict[str, object]:
    told = as_object(repeats[0]) if len(repeats) == 1 else repeats_object(repeats)
    if competition is not None:
        told["competition"] = competition.score(repeats[-1].verdict)
    return told | {"source": _name_of(source)}


def _name_of(source: Path | Candidate) -> str:
    return f"candidate {source.candidate_id[:8]}" if isinstance(source, Candidate) else str(source)


def _compile(
    task: TaskSpec,
    sources: Sequence[Path | Candidate],
    language: Language | None,
    arch: str,
    *,
    as_json: bool,
) -> int:
    if len(sources) != 1:
        raise refusal("--compile-for takes one source")
    candidate = read_kernel(sources[0], language, task)
    if candidate.language != "triton":
        raise refusal(f"--compile-for is for Triton programs, and this one is written in {candidate.language}")
    report = anyio.run(_compiled, task, candidate, arch)
    if as_json:
        put_json({"compiles": report.compiles, "reason": report.reason, **msgspec.to_builtins(report)})
    else:
        put_lines(_compilation_lines(report))
    return exits.FOUND if report.compiles else exits.NOT_FOUND


async def _compiled(task: TaskSpec, candidate: Candidate, arch: str) -> AheadReport:
    check_architecture(arch)
    with tempfile.TemporaryDirectory(prefix="ksearch-eval-") as folder:
        async with open_workers(task, candidate.language, Path(folder), WorkerSettings(evaluators=1)) as workers:
            description = await workers.describe()
        return await compile_ahead(
            candidate, description.tensors, arch=arch, others=description.other_tensors, calls=description.calls
        )


def _compilation_lines(report: AheadReport) -> list[str]:
    if report.compiles:
        lines = [f"compiles   for {report.arch}; that says nothing about numbers or speed"]
    else:
        lines = [f"compiles   not for {report.arch}: {report.reason}"]
    for kernel in report.kernels:
        if kernel.error:
            lines += [
                f"kernel     {kernel.name}: does not compile",
                *(f"  {line}" for line in kernel.error.splitlines()),
            ]
        else:
            lines.append(
                f"kernel     {kernel.name}: {kernel.registers} registers, {kernel.spilled_bytes} bytes spilled, "
                f"{kernel.shared_bytes} bytes of shared memory, {kernel.warps} warps, {kernel.stages} stages"
            )
    return [*lines, *report.error.splitlines()]
