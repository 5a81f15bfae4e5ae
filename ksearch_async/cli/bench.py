"""`ksearch bench`: evaluates candidates for a set of a benchmark's problems, and prints its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import anyio
import msgspec
from cyclopts import Parameter, validators

from evaluators.hardware.target import CPU
from evaluators.tasks.kernelbench import reading
from evaluators.tasks.kernelbench.packing import find_candidate
from evaluators.tasks.kernelbench.scoring import Score, outcome_of, score
from ksearch_async.api import search as run_search
from ksearch_async.cli import exits
from ksearch_async.cli.bench_gpumode import bench_gpumode
from ksearch_async.cli.flags import NO_EVALUATION_FLAGS, EvaluationFlags, JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.evaluation.judging import Case, Row, bench, row_object
from ksearch_async.evaluation.settings import EvaluationSettings
from ksearch_async.follow.logs import configure_logs
from ksearch_async.settings.options import RunSettings
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.terminal import note, put, put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, table_lines
from messages.tasks import Candidate
from messages.verdicts import Measured

Count = Annotated[int, Parameter(validator=validators.Number(gte=1))]

_COLUMNS = (
    Column("problem"),
    Column("fate"),
    Column("speedup", number=True),
    Column("95 % interval", rank=2),
    Column("latency", number=True, rank=3),
    Column("vs compile", number=True, rank=4),
    Column("pairs", number=True, rank=5),
    Column("note", rank=1),
)
_LONGEST_NOTE = 100


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchFlags:
    """How candidates are searched for; used with `--search` only."""

    search: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Search for each problem, and evaluate the best once more. The runs are kept."""
    max_rounds: Count = 5
    """Evaluations to spend in each search."""
    model: str | None = None
    """The model that plans and writes. Without one, the built-in rules, which know a few kinds of problems."""
    base_url: str | None = None
    """Address of the model's endpoint."""
    config: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None
    """A file with other settings of `ksearch run`."""
    runs_dir: Path | None = None
    """Folder for the runs. [env: KSEARCH_RUNS_DIR] [default: runs]"""


def bench_command(
    benchmark: Literal["kernelbench", "gpumode"],
    /,
    *,
    level: int | None = None,
    ids: str | None = None,
    root: Path | None = None,
    size: Literal["published", "cpu"] | None = None,
    candidates: Path | None = None,
    sample: int = 0,
    searching: SearchFlags = SearchFlags(),
    flags: EvaluationFlags = NO_EVALUATION_FLAGS,
    num_correct_trials: Count | None = None,
    num_perf_trials: Count | None = None,
    at_once: Count = 1,
    as_json: JsonFlag = False,
) -> int:
    """Evaluate candidates for a set of problems and print the benchmark's metrics.

    Args:
        benchmark: The benchmark.
        level: Level of KernelBench: 1, 2 or 3.
        ids: Problems to evaluate: for KernelBench numbers (1-20, or 3,7,23-30), for GPUMode names of folders. [default:
            all]
        root: A checkout of the benchmark [env: KSEARCH_KERNELBENCH]; for GPUMode the folder of one problem, or a folder
            of several problems.
        size: Problem sizes: `published`, or `cpu` for smaller ones that a CPU evaluates in seconds. [default: `cpu` on
            a CPU]
        candidates: Folder of candidate files: for KernelBench level_1_problem_23_sample_0_kernel.py, or 23.py; for
            GPUMode NAME.py. [default: each problem's reference is evaluated as a candidate, which gives about 1.00x]
        sample: Number of the generation in that folder, where there are several.
        searching: Settings of a search for each problem, instead of candidates from files.
        flags: Settings of the evaluation.
        num_correct_trials: Checked calls of the benchmark's own harness. Problems that got fewer checked calls here are
            listed; every timed call is checked, too.
        num_perf_trials: Timed calls of the benchmark's own harness. Problems that got fewer timed pairs here are
            listed; timing ends when the interval is narrow.
        at_once: Problems in work at once; one is timed at a time.
        as_json: Print one JSON object.
    """
    configure_logs()
    if searching.search and candidates is not None:
        raise refusal("--search finds candidates, and --candidates names them", "leave one out")
    settings = flags.settings()
    for_cpu = (size or ("cpu" if settings.get("device", CPU) == CPU else "published")) == "cpu"
    if benchmark == "gpumode":
        _refuse_others(level, searching, num_correct_trials, num_perf_trials)
        return bench_gpumode(
            root, settings, names=ids, candidates=candidates, for_cpu=for_cpu, at_once=at_once, as_json=as_json
        )
    if level is None:
        raise refusal("--level is missing", "--level 1, 2 or 3")
    problems = _chosen(root or reading.checkout(), level, numbers_of(ids) if ids is not None else None)
    cases = [_case(problem, candidates, sample, for_cpu=for_cpu) for problem in problems]
    names = {case.task.task_id: _name(one, for_cpu=for_cpu) for one, case in zip(problems, cases, strict=True)}
    find = partial(_searched, names, searching, settings) if searching.search else None
    rows = anyio.run(partial(bench, cases, settings, find=find, at_once=at_once, on_row=partial(_tell, len(cases))))
    asked = (num_correct_trials, num_perf_trials)
    if as_json:
        head = {"benchmark": benchmark, "level": level, "size": "cpu" if for_cpu else "published"}
        found = {"scores": _scores(rows, settings), "fewer_trials": _few_trials(rows, *asked)}
        put_json(head | {"rows": [row_object(row) for row in rows]} | found)
    else:
        _print(rows, _scores(rows, settings), _trial_lines(_few_trials(rows, *asked), *asked))
    return exits.FOUND if all(row.fate == "measured" for row in rows) else exits.NOT_FOUND


def _refuse_others(level: int | None, searching: SearchFlags, correct: int | None, perf: int | None) -> None:
    said = {
        "--level": level is not None,
        "--search": searching.search,
        "--num-correct-trials": correct is not None,
        "--num-perf-trials": perf is not None,
    }
    if given := next((flag for flag, is_given in said.items() if is_given), None):
        raise refusal(f"{given} is for kernelbench", "leave it out")


def _print(rows: Sequence[Row], scores: Sequence[Score], trials: Sequence[str]) -> None:
    put_lines(table_lines(_COLUMNS, list(map(_cells, rows)), width=terminal_width()))
    put()
    put_lines((*(line for one in scores for line in _score_lines(one)), *trials))


def numbers_of(text: str) -> tuple[int, ...]:
    """Return the numbers of `1-20`, `3,7`, or both: `1-4,9`; sorted, each once."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not all(number.isascii() and number.isdecimal() and len(number) < 6 for number in numbers):
            raise refusal(f"--ids: expected numbers and ranges, not {text!r}", "--ids 1-20, --ids 3,7,23-30")
        found |= set(range(int(first), int(numbers[-1]) + 1))
    return tuple(sorted(found))


def _chosen(root: Path, level: int, ids: Sequence[int] | None) -> list[reading.ProblemFile]:
    """Return the problems that are meant; of a range, those that there are."""
    problems = reading.list_problems(root, level)
    chosen = [problem for problem in problems if ids is None or problem.problem_id in ids]
    if not chosen:
        there = f"it has {problems[0].problem_id} to {problems[-1].problem_id}" if problems else "it has none"
        raise refusal(f"--ids: level {level} has none of these problems", there)
    return chosen


def _case(problem: reading.ProblemFile, candidates: Path | None, sample: int, *, for_cpu: bool) -> Case:
    task = reading.load_file(problem.path, problem.name, for_cpu=for_cpu)
    if candidates is None:
        return Case(task=task, is_reference=True)
    return Case(task=task, source=find_candidate(candidates, problem.level, problem.problem_id, sample=sample))


def _name(problem: reading.ProblemFile, *, for_cpu: bool) -> str:
    return f"kernelbench:{problem.path.absolute()}{':cpu' if for_cpu else ''}"


def _for_search(searching: SearchFlags, settings: EvaluationSettings) -> RunSettings:
    """Return the settings of a search: those that it shares with an evaluation, and its own."""
    shared = set(EvaluationSettings.__annotations__) & set(get_type_hints(RunSettings))
    told: dict[str, object] = {name: value for name, value in settings.items() if name in shared}
    told |= {"max_rounds": searching.max_rounds, "runs_dir": str(runs_dir_or_default(searching.runs_dir))}
    named = {"model": searching.model, "base_url": searching.base_url}
    return msgspec.convert(told | {name: value for name, value in named.items() if value is not None}, RunSettings)


async def _searched(names: Mapping[str, str], searching: SearchFlags, settings: EvaluationSettings, case: Case) -> Case:
    """Return a case with the best that a search finds for it; nothing of what was there."""
    told = _for_search(searching, settings)
    found = await run_search(names[case.task.task_id], config_file=searching.config, **told)
    note(f"{case.task.name}: {found.rounds} rounds, {found.stopped_by}, in {found.path}")
    best = found.best
    if best is None:
        fates = ", ".join(f"{count} {fate}" for fate, count in found.fates.items()) or "nothing was written"
        return Case(task=case.task, why_none=f"the search has no best: {fates}")
    source = Candidate(language=best.language, entry_point=best.entry_point, files=best.files)
    return Case(task=case.task, source=source)


def _tell(count: int, place: int, row: Row) -> None:
    speedup = f", {row.speedup:.2f}x" if row.speedup is not None else ""
    note(f"{place + 1} of {count}: {row.task}: {row.fate}{speedup} ({row.elapsed_s:.0f} s)")


def _scores(rows: Sequence[Row], settings: EvaluationSettings) -> list[Score]:
    scores = [score([outcome_of(row.verdict) for row in rows], "eager")]
    if settings.get("baseline"):
        scores.append(score([outcome_of(row.verdict, baseline=True) for row in rows], str(settings["baseline"])))
    return scores


def _cells(row: Row) -> list[str]:
    verdict = row.verdict
    said = row.reason or "; ".join(row.marks)
    cells = [row.task, row.fate, "", "", "", "", "", " ".join(said.split())[:_LONGEST_NOTE]]
    if isinstance(verdict, Measured) and verdict.speedup_interval is not None:
        interval = verdict.speedup_interval
        cells[2:7] = [
            f"{verdict.speedup_vs_reference:.2f}x",
            f"{interval.low:.2f} to {interval.high:.2f}",
            f"{verdict.latency_us:,.1f} us",
            "" if verdict.speedup_vs_baseline is None else f"{verdict.speedup_vs_baseline:.2f}x",
            str(verdict.pairs),
        ]
    return cells


def _score_lines(one: Score) -> list[str]:
    shares = "  ".join(f"fast_{threshold} {share:.2f}" for threshold, share in one.fast_p.items())
    mean = "none is timed" if one.geometric_mean is None else f"{one.geometric_mean:.3f}x over {one.timed} timed"
    return [
        f"against    {one.baseline}: {one.correct} of {one.problems} correct; geometric mean of correct {mean}",
        f"fast_p     {shares}",
    ]


def _few_trials(rows: Sequence[Row], correct: int | None, perf: int | None) -> dict[str, list[str]]:
    measured = [row for row in rows if isinstance(row.verdict, Measured)]
    return {
        "checked_calls": [row.task for row in measured if correct is not None and row.checked_calls < correct],
        "pairs": [row.task for row in measured if perf is not None and row.pairs < perf],
    }


def _trial_lines(few: dict[str, list[str]], correct: int | None, perf: int | None) -> list[str]:
    lines = []
    for asked, kind, what in ((correct, "checked_calls", "calls checked"), (perf, "pairs", "pairs timed")):
        if asked is not None:
            fewer = few[kind]
            which = (
                f"fewer for {len(fewer)}: {', '.join(fewer)}"[:_LONGEST_NOTE] if fewer else "reached by all measured"
            )
            lines.append(f"trials     {asked} {what}: {which}")
    return lines
