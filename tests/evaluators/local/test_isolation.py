"""What a candidate is kept behind when it is judged, and what the evaluation says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder
from evaluators.local import LocalEvaluator
from evaluators.process.sandbox import probe
from evaluators.process.sandbox.claims import pack
from evaluators.process.sandbox.probe import HostLayers, probe_layers
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import Target
from messages.verdicts import Measured, Unstable
from tests.evaluators.judging import Judging
from tests.evaluators.words import RIGHT, SMALL_TASK, before, build_job, cpp, evaluate_job

pytestmark = pytest.mark.anyio

HOSTILE = """
    const std::string judge = "/proc/" + std::to_string(getppid());
    const bool came_true[] = {
        fork() >= 0,
        socket(AF_INET, SOCK_DGRAM, 0) >= 0,
        kill(getppid(), 0) == 0,
        ptrace(PTRACE_SEIZE, getppid(), 0, 0) == 0,
        open((judge + "/environ").c_str(), O_RDONLY) >= 0,
        open((judge + "/mem").c_str(), O_RDWR) >= 0,
        open("/etc/shadow", O_RDONLY) >= 0,
        open("PROBLEM", O_RDONLY) >= 0,
        open("../written", O_CREAT | O_WRONLY, 0644) >= 0,
    };
    for (bool one : came_true) if (one) abort();
"""
HEADERS = ("fcntl.h", "string", "sys/ptrace.h", "sys/socket.h", "signal.h", "unistd.h")
INCLUDES = "".join(f"#include <{name}>\n" for name in HEADERS)


async def test_an_evaluation_says_what_its_candidate_was_kept_behind(
    builder: LocalBuilder, evaluator: LocalEvaluator, target: Target
) -> None:
    built = (await builder.build(build_job(cpp(RIGHT), target))).outcome
    assert isinstance(built, Built)
    report = await evaluator.evaluate(evaluate_job(cpp(RIGHT), built.artifact_id, target))
    assert set(probe_layers().layers) - set(report.isolation) <= {"uid 65534"}  # where files are its owner's alone
    assert {"rlimits", "no privileges"} <= set(report.isolation)


async def test_nothing_that_a_hostile_candidate_tries_comes_true(judge: Judging, tmp_path: Path) -> None:
    if probe_layers().missing_for_strict:
        pytest.skip(f"this host lacks {', '.join(probe_layers().missing_for_strict)}")
    problem = tmp_path / "problem.py"
    problem.write_text(SMALL_TASK.text)
    verdict = await judge(INCLUDES + before(HOSTILE.replace("PROBLEM", str(problem))))
    assert isinstance(verdict, Measured | Unstable), verdict


async def test_what_is_strict_judges_and_builds_nothing_where_layers_are_missing(
    store: Path, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = HostLayers(pack({"rlimits": "rlimits"}), {})
    monkeypatch.setattr(probe, "probe_layers", lambda: bare)
    evaluator = LocalEvaluator(store, isolation="strict")
    with pytest.raises(EvaluatorError, match="this host lacks Landlock or a private root, seccomp"):
        await evaluator.describe_task(SMALL_TASK, "cpp")
    with pytest.raises(EvaluatorError, match="--isolation strict"):
        await LocalBuilder(store, isolation="strict").build(build_job(cpp(RIGHT), target))
    await evaluator.aclose()
