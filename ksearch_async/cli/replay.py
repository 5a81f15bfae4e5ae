"""`ksearch replay`: whether a recorded run comes out as it was, with this release's prompts, parsers and decisions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from actors.bus.journal import read_journal
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.runs.folder import find_run
from ksearch_async.runs.replay import Difference, Replayed, replay_run
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.terminal import put, put_json

_MISSES_SHOWN = 10


def replay_command(
    run: str = "latest", /, *, runs_dir: Path | None = None, misses: int = _MISSES_SHOWN, as_json: JsonFlag = False
) -> int:
    """Replay a run from its journal.

    Args:
        run: A run's id, its folder, or `latest`.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        misses: Number of changed prompts to list; the others are only counted.
        as_json: Print one JSON object that lists all changed prompts.
    """
    folder = find_run(run, runs_dir_or_default(runs_dir))
    begun = time.perf_counter()
    replayed = replay_run(read_journal(folder.journal))
    wall_s = time.perf_counter() - begun
    if as_json:
        put_json({"run": folder.run_id, "same": replayed.is_same, "wall_s": round(wall_s, 3), "replayed": replayed})
    else:
        for line in _lines(folder.run_id, replayed, wall_s, misses):
            put(line)
    return exits.FOUND if replayed.is_same else exits.NOT_FOUND


def _lines(run_id: str, told: Replayed, wall_s: float, shown: int) -> Iterator[str]:
    yield f"run        {run_id}, {told.rounds} rounds, replayed in {wall_s:.1f} s"
    yield f"prompts    {told.questions} rebuilt: {told.hits} found, {len(told.misses)} missed{_unanswered(told)}"
    yield from _missed(told, shown)
    yield f"answers    {told.answers} read anew: {_otherwise(len(told.read_otherwise))}"
    for difference in told.read_otherwise[:shown]:
        yield f"           {_where(difference)}"
    yield f"decisions  {told.decisions}: {_first(told.decided_otherwise)}"
    yield f"tree       {told.hashes} hashes: {_first(told.hash_differs)}; at the end {told.state_hash}"


def _unanswered(told: Replayed) -> str:
    return f"; {told.unanswered} had no answer" if told.unanswered else ""


def _missed(told: Replayed, shown: int) -> Iterator[str]:
    for miss in told.misses[:shown]:
        yield f"           {miss.job_id} ({miss.role}): {miss.changes.words}"
    if len(told.misses) > shown:
        yield f"           and {len(told.misses) - shown} more"
    parts = Counter(f"{part} ({miss.role})" for miss in told.misses for part in miss.changes.parts)
    if parts:
        yield f"           changed parts: {', '.join(f'{part} {count}x' for part, count in parts.most_common())}"


def _otherwise(count: int) -> str:
    return f"{count} read differently" if count else "all read the same"


def _first(difference: Difference | None) -> str:
    return "all the same" if difference is None else f"otherwise from {_where(difference)}"


def _where(difference: Difference) -> str:
    return f"record {difference.seq} on: {difference.what}"
