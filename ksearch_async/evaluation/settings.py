"""Settings of an evaluation, the task that is meant, and the result; `ksearch_async.evaluation.judging` runs it."""

from __future__ import annotations

import os
from typing import Literal, TypeAlias, TypedDict, get_args, get_type_hints

import msgspec

from evaluators.hardware.target import CPU
from evaluators.judge.check.tolerances import STRICT
from ksearch_async.errors import refusal, suggestion
from ksearch_async.fleet.workers import read_task, with_library_calls, with_measure, with_threads, with_tolerance
from ksearch_async.settings.run_config import ProgramSettings, RunConfig
from messages.base import Isolation, Language
from messages.commands import Purpose
from messages.tasks import LibraryCalls, Measure, Target, TaskSpec
from messages.verdicts import GOOD_FATES, Interval, Measured, Scored, Verdict, WorkloadProfile, fate_of, reason_of

TaskLike: TypeAlias = str | os.PathLike[str] | TaskSpec


class EvaluationSettings(TypedDict, total=False):
    """Settings of an evaluation; each has a flag of `ksearch eval`."""

    language: Language
    """Language of the sources. Without it: `.cu` is cuda, `.py` triton (python if it defines `ModelNew`), everything
    else cpp."""
    device: str
    """`cpu`, `cuda:0`, or several GPUs of this host: `cuda:0,cuda:1`."""
    baseline: Literal["", "torch.compile"]
    """A second program to time beside the reference, on a GPU."""
    isolation: Isolation
    """Protection of this host from candidates: `auto` uses every mechanism that the host offers; `strict` refuses to
    run without the required ones."""
    profile: bool
    """Record the GPU's activity in calls of measured candidates."""
    purpose: Purpose
    """`confirm` measures as a search confirms a new best."""
    threads: int
    """Number of CPU threads for candidate and reference, bound to as many cores; 0: all."""
    measure: Measure
    """Latency on a GPU: `device`, the span of a call's kernels with launches hidden behind other work; `eager`, the
    call as a user makes it on an idle device."""
    tolerance: str
    """How far outputs may differ from the reference: `strict`, `kernelbench`, `flashinfer`, or `gpumode:RTOL,ATOL`."""
    library_calls: LibraryCalls
    """Rule for libraries: `deny` (the reference's own operators, cuBLAS and others) or `allow`."""
    allow_library: str
    """Exceptions from `deny`, separated by commas: operators (`aten::mm`), families (`matmul`), libraries."""
    allow_trivial: bool
    """Accept a task on which an answer that computes nothing would pass."""
    role: Literal["candidate", "baseline"]
    """`baseline`: the source is a program to compare with; any library is allowed, and so are tasks on which trivial
    answers pass."""
    score_with: str
    """The task is a Python program, and the `evaluate(program_path)` of this file scores it."""
    eval_timeout: float
    """Seconds that scoring a program may take."""
    eval_memory: float
    """Gibibytes that a program may take."""


def check_settings(settings: EvaluationSettings) -> None:
    """Check names and types of settings.

    Raises:
        ConfigError: there is no such setting, or its value is of another type.
    """
    kinds = get_type_hints(EvaluationSettings)
    for name, value in settings.items():
        if name not in kinds:
            raise refusal(f"there is no setting {name!r}", suggestion(name, kinds, f"there are: {', '.join(kinds)}"))
        try:
            msgspec.convert(os.fspath(value) if isinstance(value, os.PathLike) else value, kinds[name])
        except msgspec.ValidationError as error:
            if choices := get_args(kinds[name]):
                there = f"there are: {', '.join(map(repr, choices))}"
                raise refusal(f"{name}: there is no {value!r}", there) from error
            raise refusal(f"{name}: expected {kinds[name].__name__}, not {value!r}") from error
    if settings.get("threads", 0) < 0:
        raise refusal(f"threads: expected 0 or more, not {settings['threads']}")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a source on a task, with the conditions of its evaluation."""

    task: str
    """The task's name."""
    task_id: str
    language: Language
    candidate_id: str
    """Content hash of the source."""
    verdict: Verdict
    device: str
    """As the system reports it."""
    target: Target
    """Device and compiler of the build."""
    purpose: Purpose = "screen"
    marks: tuple[str, ...] = ()
    """Notes on the task: parts that a trick could leave out and pass."""
    isolation: tuple[str, ...] = ()
    """Layers that separated the candidate from the judge and from this host; empty if the candidate was not run."""
    build_s: float = 0.0
    judge_s: float = 0.0
    """Wall-clock seconds of checking and timing, start of the judge included."""
    lease_s: float = 0.0
    """Part of `judge_s` in which the device was leased for timing."""

    @property
    def fate(self) -> str:
        """The verdict in a word: `measured`, `wrong`, `did_not_build` and so on."""
        return fate_of(self.verdict)

    @property
    def reason(self) -> str:
        """Reason of the verdict; empty if it was measured or scored."""
        return reason_of(self.verdict)

    @property
    def good(self) -> bool:
        """True if the source does the task: it was measured (timed or not), or scored."""
        return self.fate in GOOD_FATES

    @property
    def seconds(self) -> float:
        """Durations of the evaluation: building, checking, timing."""
        return self.build_s + self.judge_s

    @property
    def speedup_vs_reference(self) -> float | None:
        """Median over pairs; null unless it was measured and timed."""
        return self.verdict.speedup_vs_reference if isinstance(self.verdict, Measured) else None

    @property
    def speedup_interval(self) -> tuple[float, float] | None:
        """95 % interval of the speedup; null unless it was measured and timed."""
        interval: Interval | None = self.verdict.speedup_interval if isinstance(self.verdict, Measured) else None
        return (interval.low, interval.high) if interval else None

    @property
    def latency_us(self) -> float | None:
        """Median over timed calls; null unless it was measured and timed."""
        return self.verdict.latency_us if isinstance(self.verdict, Measured) else None

    @property
    def profile(self) -> tuple[WorkloadProfile, ...]:
        """GPU activity in a call on each workload, as recorded in the candidate's process; only if requested."""
        return self.verdict.profile if isinstance(self.verdict, Measured) else ()

    @property
    def score(self) -> float | None:
        """Score of a program; null for kernels."""
        return self.verdict.score if isinstance(self.verdict, Scored) else None


def task_of(task: TaskLike, settings: EvaluationSettings) -> TaskSpec:
    """Return the task that is meant.

    Raises:
        ConfigError: it does not exist, or is not a task.
    """
    spec = _named(task, settings)
    if settings.get("role") == "baseline":
        spec = with_library_calls(spec, "allow", "")
    elif "library_calls" in settings or "allow_library" in settings:
        calls = settings.get("library_calls", spec.rules.library_calls)
        spec = with_library_calls(spec, calls, settings.get("allow_library", ",".join(spec.rules.allowed)))
    device = settings.get("device", CPU)
    if "measure" in settings:
        spec = with_measure(spec, settings["measure"], device=device)
    if "threads" not in settings:
        return spec
    return with_threads(spec, settings["threads"], device=device)


def _named(task: TaskLike, settings: EvaluationSettings) -> TaskSpec:
    profile = settings.get("tolerance", STRICT)
    if isinstance(task, TaskSpec):
        return task if "tolerance" not in settings else with_tolerance(task, profile)
    name = os.fspath(task)
    if isinstance(task, str) and "\n" in task:
        from evaluators.tasks import task_of_text  # noqa: PLC0415 - loaded only where it is used

        return with_tolerance(task_of_text(task), profile)
    defaults = ProgramSettings()
    program = ProgramSettings(
        evaluator=settings.get("score_with"),
        timeout_s=settings.get("eval_timeout", defaults.timeout_s),
        memory_gib=settings.get("eval_memory", defaults.memory_gib),
    )
    return read_task(RunConfig(task=name, tolerance=profile, program=program))
