"""`ksearch diff`: what changed from one candidate to another."""

from __future__ import annotations

from pathlib import Path

from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.runs.candidates import Version, Versions, diff_lines
from ksearch_async.runs.folder import find_run, read_run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.terminal import coloured, in_colour, note, one_line, put_json, put_lines, put_styled

_COLOURS = {"---": "1", "+++": "1", "@@ ": "36", "-": "31", "+": "32"}
"""Colour codes (SGR) by the first characters of a line, the longest first."""


def diff_command(
    run: str = "latest",
    a: str | None = None,
    b: str | None = None,
    /,
    *,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Show what changed from one candidate to another, as a unified diff.

    Args:
        run: A run's id, its folder, or `latest`.
        a: The older candidate: a round's number, a node's id (its best candidate), the beginning of a candidate's id,
            `best`, `n0` (the reference, before any kernel), or `base` (the program that the other candidate was derived
            from; also `parent`). If only this one is given, it is compared with its base.
        b: The newer candidate, named likewise. If neither is given, the best kernel is compared with its base.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: both versions, and the diff as text.
    """
    folder = find_run(run, runs_dir_or_default(runs_dir))
    older, newer = Versions(read_run(folder, with_texts=True)).pair(a, b)
    lines = list(diff_lines(older, newer))
    if as_json:
        text = "".join(f"{line}\n" for line in lines)
        put_json({"run": folder.run_id, "a": _as_object(older), "b": _as_object(newer), "diff": text})
    elif lines:
        if in_colour():
            put_styled("\n".join(map(_coloured, lines)))
        else:
            put_lines(lines)
    else:
        note("no difference: both are the same program")
    return exits.FOUND


def _coloured(line: str) -> str:
    code = next((code for start, code in _COLOURS.items() if line.startswith(start)), None)
    return coloured(line, code) if code else one_line(line)


def _as_object(version: Version | None) -> dict[str, object] | None:
    if version is None:
        return None
    return {
        "candidate_id": version.candidate_id,
        "node_id": version.node_id,
        "round": version.round,
        "fate": version.fate,
        "speedup_vs_reference": version.speedup,
        "screen_speedup": version.screen_speedup,
        "files": [file.path for file in version.candidate.files],
    }
