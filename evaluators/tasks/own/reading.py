"""Reads your own tasks: a folder with a `task.toml` and the files it names. Runs nothing, imports no torch.

own:FOLDER, FOLDER            all workloads
FOLDER:short,long             some of them
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluators.judge.check.tolerances import check_profile
from evaluators.tasks.own.document import DOCUMENT, Document, read_document
from evaluators.tasks.own.functions import files_for, read_function
from evaluators.tasks.own.problem_text import standing_alone, write_problem
from evaluators.tasks.selectors import parse_selector
from evaluators.tasks.workloads import choose
from messages.base import ConfigError
from messages.tasks import Dimension, TaskRules, TaskSpec, Tolerance, Workload


def read_task(selector: str) -> TaskSpec:
    """Return the task of a folder; see `evaluators.tasks.sources.Reader`.

    Raises:
        ConfigError: names file and key, and what to do.
    """
    asked = parse_selector(selector)
    folder = _folder(asked.path if asked.path is not None else Path(selector).expanduser())
    document = read_document(folder / DOCUMENT)
    where = f"{str(folder / DOCUMENT)!r}"
    try:
        return _task(folder, document, asked.rest.removeprefix(":").removeprefix("#"))
    except ConfigError as error:
        said = str(error)
        # Below this level, parts of a document are named by the file's bare name.
        raise ConfigError(where + said[len(DOCUMENT) :] if said.startswith(DOCUMENT) else said) from error


def recognizes(path: Path) -> bool:
    """Return True if a path is a folder with a `task.toml`, or that file."""
    return path.is_file() if path.name == DOCUMENT else (path / DOCUMENT).is_file()


def find_folder(name: str) -> Path | None:
    """Return the folder of an own task by its name, with or without `own:` and workloads; None if there is none."""
    asked = parse_selector(name)
    if asked.source not in ("", "own") or asked.path is None or not recognizes(asked.path):
        return None
    return _folder(asked.path)


def _folder(path: Path) -> Path:
    return path.parent if path.name == DOCUMENT else path


def _task(folder: Path, document: Document, selection: str) -> TaskSpec:
    function = read_function(folder, document.reference, f"{DOCUMENT}, reference")
    maker = None
    if isinstance(document.inputs, str):
        maker = read_function(folder, document.inputs, f"{DOCUMENT}, inputs")
    elif not document.inputs:
        raise ConfigError(f"{DOCUMENT}: there are no inputs; name each argument of {function.name} in [[inputs]]")
    workloads = _workloads(document)
    if selection:
        workloads = choose(workloads, selection, document.name)
    paths = [function.path, *([maker.path] if maker else [])]
    files = files_for(folder, paths, f"{DOCUMENT}, reference")
    alone = standing_alone(files[0].text) if len(files) == 1 and maker is None else ""
    text = write_problem(document, function, maker, workloads, alone)
    return TaskSpec(
        name=f"{document.name}:{selection}" if selection else document.name,
        source="own",
        text=text,
        files=() if alone else files,
        tolerance=_tolerance(document),
        rules=_rules(document),
        workloads=workloads,
        calling=document.calling,
        entry_point=function.name,
        languages=document.languages,
        notes=document.description.strip(),
    )


def _workloads(document: Document) -> tuple[Workload, ...]:
    """Return the workloads, hidden ones last."""
    found = [*_named(document.workloads, hidden=False), *_named(document.hidden_workloads, hidden=True)]
    if not document.workloads:
        raise ConfigError(f"{DOCUMENT}: there are no workloads; [workloads] needs one at least: small = {{rows = 64}}")
    if double := next((name for name in document.workloads if name in document.hidden_workloads), None):
        raise ConfigError(f"{DOCUMENT}, hidden_workloads: {double!r} is the name of a workload that is shown")
    wanted = set(found[0].dimensions)
    for workload in found:
        if different := sorted(wanted ^ set(workload.dimensions)):
            raise ConfigError(
                f"{DOCUMENT}, workload {workload.name!r}: all workloads give the same dimensions, but {different[0]!r} "
                f"is {'missing here' if different[0] in wanted else f'not in {found[0].name!r}'}"
            )
    return tuple(found)


def _named(table: Mapping[str, Mapping[str, Dimension]], *, hidden: bool) -> list[Workload]:
    for name, dimensions in table.items():
        if bad := next((one for one in dimensions if not one.isidentifier()), None):
            raise ConfigError(f"{DOCUMENT}, workload {name!r}: {bad!r} is no name of a dimension")
        if not name.strip() or "," in name or ":" in name:
            raise ConfigError(f"{DOCUMENT}, workloads: {name!r} is no name; leave out commas and colons")
    return [Workload(name=name, dimensions=dict(each), hidden=hidden) for name, each in table.items()]


def _tolerance(document: Document) -> Tolerance:
    given = document.tolerance
    profile = given if isinstance(given, str) else given.profile
    try:
        check_profile(profile)
    except ConfigError as error:
        raise ConfigError(f"{DOCUMENT}, tolerance: {error}") from error
    if isinstance(given, str):
        return Tolerance(profile=profile)
    for key, value in (("rtol", given.rtol), ("atol", given.atol)):
        if value is not None and not 0 <= value < 1e6:
            raise ConfigError(f"{DOCUMENT}, tolerance.{key}: {value} is no bound; give a number of at least 0")
    return Tolerance(profile=profile, rtol=given.rtol, atol=given.atol)


def _rules(document: Document) -> TaskRules:
    rules = document.rules
    if rules.threads < 0:
        raise ConfigError(f"{DOCUMENT}, rules.threads: {rules.threads} is no number of threads; 0 means all")
    return TaskRules(
        library_calls=rules.library_calls,
        allowed=_allowed(rules.allow),
        measure=rules.measure,
        threads=rules.threads,
    )


def _allowed(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    from evaluators.build.policy.operators import parse_allowed  # noqa: PLC0415 - costs the start-up of every command

    try:
        return parse_allowed(",".join(names))
    except ConfigError as error:
        raise ConfigError(f"{DOCUMENT}, rules.allow: {error}") from error
