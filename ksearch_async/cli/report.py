"""`ksearch report`: a page about runs, or figures of them, for people who were not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.runs.folder import RunFolder, find_run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.compare import compared
from ksearch_async.views.report.gallery import Form, pictures_of, rendered, require_plotting
from ksearch_async.views.report.page import Dossier, dossier_of, page_of
from ksearch_async.views.terminal import note, put, put_json


def report_command(
    *runs: str,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    svg: Path | None = None,
    png: Path | None = None,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Write a page about runs of one task, or figures for papers.

    Args:
        runs: Ids or folders of runs, or `latest`. [default: latest]
        output: Write one HTML page to this file. It needs no network and no scripts.
        svg: Write the figures into this folder, as SVG.
        png: Write the figures into this folder, as PNG with 200 dots per inch.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"written": ["…"]}`.
    """
    if output is None and svg is None and png is None:
        raise refusal("nothing to write is named", "-o report.html for a page, --svg DIR or --png DIR for figures")
    require_plotting()
    folders = [find_run(run, runs_dir_or_default(runs_dir)) for run in runs or ("latest",)]
    _refuse_doubles(folders)
    dossiers = [dossier_of(folder) for folder in folders]
    written: list[Path] = []
    for path, content in _files(dossiers, output, svg, png):
        _write(path, content)
        written.append(path)
    if as_json:
        put_json({"written": [str(path) for path in written]})
    for path in () if as_json else written:
        put(str(path))
    if not as_json and not written:
        note("nothing can be drawn: nothing was evaluated yet")
    return exits.FOUND


def _refuse_doubles(folders: Sequence[RunFolder]) -> None:
    for place, folder in enumerate(folders):
        if folder.path in [other.path for other in folders[:place]]:
            raise refusal(f"run {folder.run_id!r} is named twice")


def _files(
    dossiers: Sequence[Dossier], output: Path | None, svg: Path | None, png: Path | None
) -> Iterator[tuple[Path, bytes]]:
    comparison = compared([dossier.entrant for dossier in dossiers])
    if output is not None:
        yield output, page_of(dossiers).encode()
    forms: tuple[tuple[Form, Path | None], ...] = (("svg", svg), ("png", png))
    for form, folder in forms:
        for picture in pictures_of(comparison.series) if folder is not None else ():
            yield Path(folder or "") / f"{picture.name}.{form}", rendered(picture, form)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise refusal(f"cannot write {str(path)!r}: {error.strerror}", "choose another place") from error
