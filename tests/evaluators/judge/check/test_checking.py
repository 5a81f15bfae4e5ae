"""In which order a candidate is checked, and what a glance at it in their midst decides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import evaluators
from evaluators.build.builder import LocalBuilder, artifact_folder, load_meta
from evaluators.hardware.target import probe_target
from evaluators.judge.candidate.candidate import CandidateSide, cache_of
from evaluators.judge.candidate.runner import open_launcher
from evaluators.judge.check.checking import Checker, Glance
from evaluators.judge.protocol import Artifact, Judged, Limits, Passed
from evaluators.judge.workloads import load_problems, open_rooms
from evaluators.languages import support_of
from evaluators.process.guard import descendants_of
from messages.commands import BuildCandidate
from messages.events import Built
from messages.tasks import Candidate, SourceFile, Workload
from messages.verdicts import Interval, Outpaced, Verdict, Wrong
from tests.evaluators.languages.python.words import RIGHT as RIGHT_MODULE
from tests.evaluators.words import RIGHT, SMALL_TASK

pytestmark = pytest.mark.anyio

TASK = replace(
    SMALL_TASK,
    text=SMALL_TASK.text.replace("get_inputs()", "get_inputs(rows)").replace("rand(64", "rand(rows"),
    workloads=(Workload(name="few", dimensions={"rows": 4}), Workload(name="many", dimensions={"rows": 400})),
)
SPOILT_BY_OTHERS = RIGHT.replace(
    "// before", "static bool was_many = false; was_many |= rows == 400; if (was_many && rows == 4) return 0;"
)
WRONG_AT_ONCE = RIGHT.replace("// before", "if (rows == 400) return 0;")
WRONG_ON_TIES = RIGHT.replace("// before", "if (x[0] == x[1] && x[1] == x[2]) return 0;")
"""Families of data with equal values are drawn for each candidate; here there is time for all of them."""
SLOW = Outpaced(reason="slow", speedup_interval=Interval(low=0.1, high=0.2))


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checker:
    monkeypatch.chdir(tmp_path)
    support = support_of("cpp")
    loaded = load_problems(TASK, "cpu", hidden=False)
    keep = frozenset(descendants_of(os.getpid()))
    launcher = open_launcher(support.runner)
    rooms = open_rooms(loaded, support, launcher, Limits(), threads=1, reference_ns=[1, 2], keep=keep)
    return Checker(rooms.shown, TASK, is_slow=False)


async def built(text: str, folder: Path) -> Artifact:
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="main.cpp", text=text),))
    builder = LocalBuilder(folder)
    job = BuildCandidate(job_id="b", run_id="r", candidate=candidate, target=probe_target("cpp"))
    outcome = (await builder.build(job)).outcome
    assert isinstance(outcome, Built)
    meta = load_meta(folder, outcome.artifact_id)
    return Artifact(product=str(artifact_folder(folder, outcome.artifact_id) / meta.product), entry_point="ksearch_run")


def saying(verdict: Verdict | None, asked: list[int]) -> Glance:
    """Return a glance that says this, and notes the process that it is asked about."""

    def glance(side: CandidateSide) -> Verdict | None:
        asked.append(side.pid)
        return verdict

    return glance


@pytest.mark.parametrize("program", [SPOILT_BY_OTHERS, WRONG_ON_TIES])
@pytest.mark.parametrize(
    ("said", "expected"), [(None, lambda verdict: isinstance(verdict, Wrong)), (SLOW, lambda verdict: verdict == SLOW)]
)
async def test_a_glance_comes_before_second_visits_and_drawn_data_and_ends_the_checks_if_it_says_so(
    checker: Checker, tmp_path: Path, program: str, said: Verdict | None, expected: Callable[[Verdict], bool]
) -> None:
    asked: list[int] = []
    answer = checker.check(await built(program, tmp_path), is_brief=True, glance=saying(said, asked))
    assert isinstance(answer, Judged)
    assert expected(answer.verdict), answer.verdict
    assert len(asked) == 1


async def test_nobody_glances_at_what_is_wrong(checker: Checker, tmp_path: Path) -> None:
    asked: list[int] = []
    answer = checker.check(await built(WRONG_AT_ONCE, tmp_path), is_brief=True, glance=saying(SLOW, asked))
    assert isinstance(answer, Judged)
    assert isinstance(answer.verdict, Wrong)
    assert answer.verdict.workload == "many"
    assert not asked


async def test_an_evaluation_begins_without_what_the_one_before_it_left(checker: Checker, tmp_path: Path) -> None:
    artifact = await built(RIGHT, tmp_path)
    note = cache_of(artifact, 2) / "note"
    note.touch()
    assert isinstance(checker.check(artifact), Passed)
    assert not note.exists()


OF_A_MODULE = """
import json, os, sys
from pathlib import Path
from evaluators.process.guard import become_subreaper, descendants_of
from evaluators.judge.check.checking import Checker
from evaluators.judge.candidate.runner import open_launcher
from evaluators.judge.protocol import Artifact, Limits, Passed
from evaluators.judge.workloads import load_problems, open_rooms
from evaluators.languages import support_of
from tests.evaluators.words import SMALL_TASK

class Noting:
    def __init__(self, launcher):
        self.launcher, self.pids, self.started, self.alive = launcher, launcher.pids, [], []

    def start(self, spec, *, log):
        self.alive.append(sum(process.poll() is None for process in self.started))
        self.started.append(self.launcher.start(spec, log=log))
        return self.started[-1]

become_subreaper()
support = support_of("python")
launcher = Noting(open_launcher(support.runner))
loaded = load_problems(SMALL_TASK, "cpu", hidden=False)
keep = frozenset(descendants_of(os.getpid()))
rooms = open_rooms(loaded, support, launcher, Limits(), threads=1, reference_ns=[1], keep=keep)
checker = Checker(rooms.shown, SMALL_TASK, is_slow=False)
answer = checker.check(Artifact(product=str(Path("main.py").resolve()), entry_point="ModelNew"))
assert isinstance(answer, Passed), answer
print(json.dumps(launcher.alive))
"""


def test_the_process_for_other_parameters_begins_while_the_first_one_is_at_work(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(RIGHT_MODULE)
    environment = {**os.environ, "PYTHONPATH": str(Path(evaluators.__file__).parents[1])}
    command = [sys.executable, "-c", OF_A_MODULE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=120)
    assert json.loads(done.stdout or "null") == [0, 1], done.stderr.decode()
