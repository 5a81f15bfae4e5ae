"""`ksearch bench gpumode`: a folder of a competition's problems, each with what its submission would be ranked by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec

from evaluators.tasks.gpumode import reading
from evaluators.tasks.gpumode.packing import candidate_of_text
from evaluators.tasks.gpumode.reading import DOCUMENT
from evaluators.tasks.gpumode.scoring import Competition, find_competition
from evaluators.tasks.selectors import read_text
from ksearch_async.cli import exits
from ksearch_async.errors import refusal, suggestion
from ksearch_async.evaluation.judging import UNUSABLE, Case, Row, bench, row_object
from ksearch_async.evaluation.settings import EvaluationSettings
from ksearch_async.views.terminal import note, put, put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, table_lines
from messages.base import ConfigError
from messages.verdicts import CORRECT_FATES, Measured

_COLUMNS = (
    Column("problem"),
    Column("fate"),
    Column("score", number=True),
    Column("upstream", number=True, rank=2),
    Column("ranked by", rank=4),
    Column("speedup", number=True, rank=1),
    Column("note", rank=3),
)
_LONGEST_NOTE = 100
_DEPTH = 3
"""How many folders below the root problems may lie: `problems/bioml/trimul`."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of the set."""

    name: str
    """Name of the problem's folder."""
    case: Case | None
    competition: Competition | None
    why_not: str = ""
    """Reason why it cannot be evaluated; empty if it can."""


def bench_gpumode(
    root: Path | None,
    settings: EvaluationSettings,
    *,
    names: str | None,
    candidates: Path | None,
    for_cpu: bool,
    at_once: int,
    as_json: bool,
) -> int:
    """Evaluate each problem's candidate, print the figures, and return the exit code.

    Args:
        root: a problem's folder, or a folder of several.
        settings: settings of the evaluation.
        names: names of the problems' folders, separated by commas; null: all.
        candidates: a folder with a `NAME.py` for each problem; null: each reference is evaluated as a candidate.
        for_cpu: only the smallest tests, which have no figure.
        at_once: problems in work at once.
        as_json: print one JSON object.
    """
    if root is None:
        raise refusal("no problems are named", "--root FOLDER, such as problems/pmpp_v2 of reference-kernels")
    problems = [_problem(folder, candidates, for_cpu=for_cpu) for folder in _folders(root, names)]
    cases = [problem.case for problem in problems if problem.case is not None]
    done = iter(anyio.run(partial(bench, cases, settings, at_once=at_once, on_row=partial(_tell, len(cases)))))
    rows = [
        next(done)
        if problem.case is not None
        else Row(task=problem.name, task_id="", fate=UNUSABLE, reason=problem.why_not, elapsed_s=0.0)
        for problem in problems
    ]
    pairs = list(zip(problems, rows, strict=True))
    if as_json:
        head = {"benchmark": "gpumode", "size": "cpu" if for_cpu else "published"}
        put_json(head | {"rows": [_as_object(problem, row) for problem, row in pairs]})
    else:
        put_lines(table_lines(_COLUMNS, [_cells(*pair) for pair in pairs], width=terminal_width()))
        put()
        put_lines(_summary(pairs))
    return exits.FOUND if all(row.fate == "measured" for row in rows) else exits.NOT_FOUND


def _folders(root: Path, names: str | None) -> list[Path]:
    patterns = ["/".join(["*"] * depth + [DOCUMENT]) for depth in range(_DEPTH + 1)]
    found = sorted({path.parent for pattern in patterns for path in root.glob(pattern)})
    if not found:
        raise refusal(
            f"{str(root)!r} holds no GPUMode problem",
            f"--root names a folder of a checkout of gpu-mode/reference-kernels with {DOCUMENT} in or below it",
        )
    if names is None:
        return found
    wanted = [name.strip() for name in names.split(",")]
    known = [folder.name for folder in found]
    if unknown := next((name for name in wanted if name not in known), None):
        raise refusal(
            f"--ids: there is no problem {unknown!r}", suggestion(unknown, known, f"there are: {', '.join(known)}")
        )
    return [folder for folder in found if folder.name in wanted]


def _problem(folder: Path, candidates: Path | None, *, for_cpu: bool) -> Problem:
    """Return a problem with its case; one that cannot be read says why."""
    try:
        competition = find_competition(f"gpumode:{folder}")
        both = f"{reading.BENCHMARK},{reading.UPSTREAM}{reading.BENCHMARK}"
        reads_otherwise = competition is not None and competition.reads_otherwise
        cases = reading.CPU if for_cpu else both if reads_otherwise else reading.BENCHMARK
        name = f"gpumode:{folder}:{cases}"
        task = reading.read_task(name.removeprefix("gpumode:"))
        competition = find_competition(name)
        if candidates is None:
            return Problem(name=folder.name, case=Case(task=task, is_reference=True), competition=competition)
        file = candidates / f"{folder.name}.py"
        source = candidate_of_text(read_text(file, repr(str(file))), task) if file.exists() else None
        return Problem(name=folder.name, case=Case(task=task, source=source), competition=competition)
    except ConfigError as error:
        return Problem(name=folder.name, case=None, competition=None, why_not=str(error))


def _tell(count: int, place: int, row: Row) -> None:
    note(f"{place + 1} of {count}: {row.task}: {row.fate} ({row.elapsed_s:.0f} s)")


def _as_object(problem: Problem, row: Row) -> dict[str, object]:
    figures = problem.competition.score(row.verdict) if problem.competition and row.verdict is not None else None
    return row_object(row) | {"problem": problem.name, "competition": figures}


def _cells(problem: Problem, row: Row) -> list[str]:
    cells = [
        problem.name,
        row.fate,
        "",
        "",
        "",
        "",
        " ".join((row.reason or "; ".join(row.marks)).split())[:_LONGEST_NOTE],
    ]
    if problem.competition is not None:
        cells[4] = problem.competition.ranking_by
        if row.verdict is not None:
            figures = problem.competition.score(row.verdict)
            cells[2:4] = [_us(figures.as_meant_us), _us(figures.as_upstream_us)]
    if isinstance(row.verdict, Measured) and row.verdict.speedup_vs_reference is not None:
        cells[5] = f"{row.verdict.speedup_vs_reference:.2f}x"
    return cells


def _us(latency_us: float | None) -> str:
    return "" if latency_us is None else f"{latency_us:,.1f} us"


def _summary(pairs: Sequence[tuple[Problem, Row]]) -> Iterator[str]:
    correct = sum(row.fate in CORRECT_FATES for _, row in pairs)
    ranked = sum(_is_ranked(*pair) for pair in pairs)
    yield f"correct    {correct} of {len(pairs)}; {ranked} have a figure, smaller is better"
    if ranked:
        yield "upstream   over the benchmarks as the competition's harness reads them; score: as they are meant"
    else:
        yield "score      none: benchmarks are timed with --size published"


def _is_ranked(problem: Problem, row: Row) -> bool:
    if problem.competition is None or row.verdict is None:
        return False
    return problem.competition.score(row.verdict).as_meant_us is not None
