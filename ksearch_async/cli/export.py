"""`ksearch export`: writes a kernel as one module that needs nothing of ksearch."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import anyio
import msgspec
from cyclopts import Parameter

from ksearch_async.cli import exits
from ksearch_async.cli.eval import as_object, hint_on, lines_of
from ksearch_async.cli.flags import NO_EVALUATION_FLAGS, EvaluationFlags, JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.evaluation.candidates import read_kernel
from ksearch_async.evaluation.judging import open_judge
from ksearch_async.evaluation.settings import Evaluation, EvaluationSettings, task_of
from ksearch_async.export import Winner, check_call, check_exportable, write_module
from ksearch_async.export.receipt import facts_of
from ksearch_async.follow.logs import configure_logs
from ksearch_async.runs.candidates import BEST, read_provenance
from ksearch_async.runs.folder import RunFolder, check_writable, find_run, read_run
from ksearch_async.settings.run_config import load_config, runs_dir_or_default
from ksearch_async.views.lines import way_on
from ksearch_async.views.terminal import as_argument, note, put, put_json, put_lines
from messages.tasks import Candidate, TaskSpec
from messages.verdicts import Measured, outcome_line

Form: TypeAlias = Literal["module", "kernelbench", "gpumode", "flashinfer"]


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that may be faster than what is exported."""

    candidate_id: str
    round: int
    screen_speedup: float
    """Speedup in its only measurement."""
    way_on: str
    """Command that confirms it; empty: none is needed since the run continues, or none would confirm it."""


def export_command(
    source: str,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    candidate: str = BEST,
    form: Form = "module",
    task: str | None = None,
    flags: EvaluationFlags = NO_EVALUATION_FLAGS,
    force: Annotated[bool, Parameter(negative="")] = False,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Write a kernel as one importable module: its source, a callable, its receipt, and a self-test.

    Args:
        source: A run's id, its folder, or `latest`; a run's `best` folder; or, with --task, a source file, which is
            evaluated first: only measured kernels are exported.
        output: File to write.
        candidate: The run's candidate to export: a round's number, a node's id, the beginning of a candidate's id, or
            `best`.
        form: `module`: a Python module with a callable, the receipt of its measurement and a self-test. `kernelbench`:
            a file with `ModelNew` that KernelBench's harness takes, and nothing else. `gpumode`: a `submission.py` for
            the GPUMode competition. `flashinfer`: a solution's JSON for FlashInfer-Bench.
        task: The task that a source file solves: a bundled problem's name, or a problem file in KernelBench's format.
        flags: Settings of the evaluation of a source file.
        force: Replace an existing file.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"path": …, "candidate_id": …, "run": …, "waiting": {…} | null, …}`.
    """
    configure_logs()
    _check_free(output, force=force)
    waiting: Waiting | None = None
    if task is None and flags != NO_EVALUATION_FLAGS:
        raise refusal("a run's kernel is exported as the run evaluated it", "--language and the like go with --task")
    if task is not None and candidate != BEST:
        raise refusal("--candidate is for runs, and --task for source files", "leave one out")
    if task is None:
        folder, which = _run_of(source, candidate, runs_dir_or_default(runs_dir))
        named = load_config(folder.config).task if form == "flashinfer" else ""
        winner = _from_run(folder, which, form, named)
        waiting = _waiting(folder) if which == BEST else None
    else:
        named = task
        settings = flags.settings() | EvaluationSettings(purpose="confirm")
        spec = task_of(task, settings)
        kernel = read_kernel(source, flags.language, spec)
        settings |= EvaluationSettings(language=kernel.language)
        _check_form(spec, kernel, form, named)
        found = anyio.run(_measured, spec, kernel, settings, form)
        if isinstance(found, Evaluation):
            _say_not_exported(found, as_json=as_json)
            return exits.NOT_FOUND
        winner = found
    _write(output, _text_of(winner, form, named), force=force)
    if as_json:
        told = {"candidate_id": winner.candidate.candidate_id, "language": winner.candidate.language}
        run = {"run": winner.run_id or None, "task": winner.task.name}
        put_json({"path": str(output), **run, **told, "waiting": waiting})
    else:
        put(f"wrote      {output}")
        name = f"{winner.candidate.candidate_id[:8]} ({winner.candidate.language})"
        put(f"kernel     {name}, {outcome_line(winner.verdict)}")
        if form == "module":
            put(f"try it     python {as_argument(output)} --self-test")
    _note_waiting(waiting)
    return exits.FOUND


def _waiting(folder: RunFolder) -> Waiting | None:
    chronicle = read_run(folder)
    found = chronicle.waiting
    if found is None:
        return None
    return Waiting(
        candidate_id=found.candidate_id,
        round=found.round,
        screen_speedup=found.speedup,
        way_on=way_on(chronicle, in_use=folder.in_use(), run=folder.run_id),
    )


def _note_waiting(waiting: Waiting | None) -> None:
    if waiting is None:
        return
    place = f"round {waiting.round}, {waiting.screen_speedup:.2f}x"
    note(f"note: a candidate that may be faster waits to be confirmed: {place}, measured once; it was not exported")
    if waiting.way_on:
        note(f"hint: {waiting.way_on} has it measured once more")


def _text_of(winner: Winner, form: Form, named: str) -> str:
    """Return the text of the exported file.

    Args:
        winner: the kernel to export.
        form: the form to export it in.
        named: the task as the user named it.
    """
    if form == "module":
        return write_module(winner)
    if form == "gpumode":
        from evaluators.tasks.gpumode.packing import write_submission as write_gpumode  # noqa: PLC0415 - of one source

        return write_gpumode(winner.candidate, winner.task, facts_of(winner))
    if form == "flashinfer":
        from ksearch_async.export.solution import write_solution  # noqa: PLC0415 - of one source

        return write_solution(winner, named)
    from evaluators.tasks.kernelbench.packing import write_submission  # noqa: PLC0415 - of one source

    return write_submission(winner.candidate, winner.task, winner.tensors)


def _check_form(task: TaskSpec, candidate: Candidate, form: Form, named: str) -> None:
    """Check that a kernel can be exported in a form, before anything is measured.

    Args:
        task: the kernel's task.
        candidate: the kernel.
        form: the form to export it in.
        named: the task as the user named it.
    """
    if form == "gpumode":
        from evaluators.tasks.gpumode.packing import write_submission  # noqa: PLC0415 - of one source

        if task.source != "gpumode":
            raise refusal(f"{task.name!r} is no problem of GPUMode", "name one as the task: gpumode:PATH")
        write_submission(candidate, task)
        return
    if form == "flashinfer":
        from ksearch_async.export.solution import check_solution  # noqa: PLC0415 - of one source

        check_solution(task, candidate, named)
        return
    check_exportable(task, candidate)


def _from_run(folder: RunFolder, which: str, form: Form, named: str) -> Winner:
    known = read_provenance(folder, which)
    _check_form(known.task, known.candidate, form, named)
    evaluated = known.evaluated
    name = f"candidate {known.candidate.candidate_id[:8]}"
    if evaluated is None:
        raise refusal(f"{name} was never judged", "only what was measured is exported")
    if not isinstance(evaluated.verdict, Measured):
        raise refusal(f"{name} was not measured: {outcome_line(evaluated.verdict)}", "only what was is exported")
    return Winner(
        task=known.task,
        tensors=known.tensors,
        call=known.call,
        candidate=known.candidate,
        target=known.target,
        verdict=evaluated.verdict,
        device=evaluated.device,
        purpose=evaluated.purpose,
        measured_at=known.evaluated_at,
        run_id=known.run_id,
        round=known.round,
        isolation=evaluated.isolation,
        marks=known.marks,
        found_by=known.found_by,
        wall_s=evaluated.wall_s,
        lease_s=evaluated.lease_s,
    )


def _run_of(source: str, which: str, runs_dir: Path) -> tuple[RunFolder, str]:
    path = Path(source)
    if path.is_file():
        raise refusal(f"{source!r} is a source file, and its task is not said", "--task TASK: what it is to do")
    if (path / "evidence.json").is_file() or (path / "candidate.json").is_file():
        return _of_folder(path.resolve(), which)
    return find_run(source, runs_dir), which


def _of_folder(folder: Path, which: str) -> tuple[RunFolder, str]:
    for run, name in ((folder.parent, BEST), (folder.parent.parent, folder.name)):
        if (run / "journal.jsonl").is_file():
            return RunFolder(run), name if which == BEST else which
    raise refusal(f"{str(folder)!r} lies in no run", "--task TASK: what it is to do; it is then evaluated first")


async def _measured(
    task: TaskSpec, candidate: Candidate, settings: EvaluationSettings, form: Form
) -> Winner | Evaluation:
    """Evaluate a source file; what is not measured is returned as it is."""
    async with open_judge(task, **settings) as judge:
        description = await judge.describe()
        call = next(iter(description.calls), None)
        if form == "module":
            check_call(task, call)
        found = await judge.evaluate(candidate, on_stage=lambda stage: note(f"{stage} ..."))
        if not isinstance(found.verdict, Measured):
            return found
    return Winner(
        task=task,
        tensors=description.tensors,
        call=call,
        candidate=candidate,
        target=found.target,
        verdict=found.verdict,
        device=found.device,
        purpose=found.purpose,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        isolation=found.isolation,
        marks=found.marks,
        wall_s=found.seconds,
        lease_s=found.lease_s,
    )


def _say_not_exported(found: Evaluation, *, as_json: bool) -> None:
    if as_json:
        put_json(as_object(found) | {"path": None})
    else:
        put_lines(lines_of(found))
        note("nothing was written: only what was measured is exported")
        if hint := hint_on(found.verdict):
            note(f"hint: {hint}")


def _check_free(output: Path, *, force: bool) -> None:
    if output.is_dir():
        raise refusal(f"{str(output)!r} is a folder", "-o names the file to write")
    if output.exists() and not force:
        raise refusal(f"there is a file {str(output)!r} already", "--force replaces it")
    try:
        output.absolute().parent.mkdir(parents=True, exist_ok=True)
        check_writable(output.absolute().parent)
    except OSError as error:
        raise refusal(f"cannot write {str(output)!r}: {error.strerror}") from error


def _write(output: Path, text: str, *, force: bool) -> None:
    """Write the module; it appears whole."""
    fresh = output.with_name(f".{output.name}.new")
    try:
        fresh.write_text(text, encoding="utf-8", newline="")
        _check_free(output, force=force)  # measuring takes a while
        fresh.replace(output)
    except OSError as error:
        raise refusal(f"cannot write {str(output)!r}: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)
