"""Exit codes and `--json` outputs of what looks back at runs, byte for byte: recorded runs and frozen outputs.

`python -m tests.ksearch_async.test_golden` writes the frozen outputs; its difference in `git diff` is what scripts of
users will see.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from ksearch_async.cli import main

JOURNALS = Path(__file__).parents[2] / "docs" / "benchmarks" / "journals"
GOLDEN = Path(__file__).with_name("golden")
NORM, SOFT_1, SOFT_2 = RUNS = (
    "rmsnorm-silu-gpu-20261120-150021-wwke",
    "softmax-rows-gpu-20261120-152309-87x9",
    "softmax-rows-gpu-20261120-150300-sjbh",
)
RECORDED = dict(zip(RUNS, ("rmsnorm_silu_2_h200", "softmax_rows_1_h200", "softmax_rows_2_h200"), strict=True))
CASES = {
    "ls": ["ls"],
    "show": ["show", NORM],
    "show-node": ["show", NORM, "n19"],
    "show-candidate": ["show", NORM, "417f4981a0"],
    "show-unknown": ["show", NORM, "n999"],
    "tree": ["tree", NORM],
    "tree-why": ["tree", NORM, "--why"],
    "best": ["best", NORM],
    "best-unknown": ["best", "nothing-of-this-name"],
    "cost": ["cost", NORM, SOFT_1],
    "compare": ["compare", SOFT_1, SOFT_2],
    "compare-other-task": ["compare", NORM, SOFT_1],
    "diff": ["diff", NORM],
    "replay": ["replay", SOFT_1],
}
CLOCK = re.compile(r'"(age_s|wall_s)":[0-9.e+-]+')


def recorded_runs(runs_dir: Path) -> None:
    for age, (run_id, name) in enumerate(RECORDED.items()):
        journal = runs_dir / run_id / "journal.jsonl"
        journal.parent.mkdir(parents=True)
        with gzip.open(JOURNALS / f"{name}.jsonl.gz") as packed, journal.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked)
        os.utime(journal, (1e9 - age, 1e9 - age))


def output_of(arguments: list[str], runs_dir: Path) -> str:
    """Return the exit code and the lines that the command prints, indented, without clock times and places."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        code = main([*arguments, "--runs-dir", str(runs_dir), "--json"])
    text = CLOCK.sub(r'"\1":0', printed.getvalue().replace(str(runs_dir), "RUNS"))
    values = [json.dumps(json.loads(line), indent=1, ensure_ascii=False) for line in text.splitlines() if line]
    return "\n".join([f"exit code {code}", *values, ""])


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    recorded_runs(folder)
    return folder


@pytest.mark.parametrize("name", CASES)
def test_an_output_for_scripts_is_the_frozen_one(name: str, runs_dir: Path) -> None:
    assert output_of(CASES[name], runs_dir) == (GOLDEN / f"{name}.txt").read_text()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        recorded_runs(Path(scratch))
        for case, arguments in CASES.items():
            (GOLDEN / f"{case}.txt").write_text(output_of(arguments, Path(scratch)))
