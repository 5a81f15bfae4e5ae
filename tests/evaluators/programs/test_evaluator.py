"""Programs are scored in processes of their own, and nothing that they do is an error of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import psutil  # type: ignore[import-untyped]
import pytest

from evaluators.programs.evaluator import ProgramBuilder, ProgramEvaluator
from evaluators.programs.task import probe_interpreter
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import TaskSpec
from messages.verdicts import Crashed, DidNotBuild, Rejected, Scored, TimedOut, Verdict, fate_of
from tests.evaluators.programs.words import EVALUATOR, PROGRAM, job, program, task_in
from tests.evaluators.words import build_job
from tests.orphans import still_running

pytestmark = pytest.mark.anyio

LIMIT_S = 1.5


@pytest.fixture
async def evaluator() -> AsyncIterator[ProgramEvaluator]:
    evaluator = ProgramEvaluator(slots=4, environment=dict(os.environ))
    yield evaluator
    await evaluator.aclose()


async def verdict_on(evaluator: ProgramEvaluator, task: TaskSpec, body: str) -> Verdict:
    return (await evaluator.evaluate(job(task, program(body)))).verdict


Descendants: TypeAlias = Callable[[], list[psutil.Process]]


@pytest.fixture
def descendants() -> Descendants:
    """Living processes that were begun in this test: the session's other tests keep servers."""
    before = {process.pid for process in psutil.Process().children(recursive=True)}

    def look() -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process().children(recursive=True)
        return [each for each in found if each.pid not in before and lives(each)]

    return look


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def only_the_zygote_is_left(descendants: Descendants) -> None:
    """Wait for the end of wardens: each ends after it has sent its verdict."""
    with anyio.fail_after(5):
        while True:
            if len(descendants()) == 1:
                return
            await anyio.sleep(0.02)


async def test_a_program_has_the_score_that_the_evaluator_says(evaluator: ProgramEvaluator, tmp_path: Path) -> None:
    report = await evaluator.evaluate(job(task_in(tmp_path), program("return 2")))
    assert report.verdict == Scored(score=2.0, metrics={"combined_score": 2.0, "stage": "full"})
    assert report.device
    assert report.wall_s > 0


MISDEEDS = {
    "hang": ("import time\ntime.sleep(3600)", TimedOut, "1.5 s"),
    "spin": ("while True: pass", TimedOut, "1.5 s"),
    "segfault": ("import ctypes\nctypes.string_at(0)", Crashed, "signal 11"),
    "exit": ("import os\nos._exit(3)", Crashed, "exit code 3"),
    "sys.exit": ("import sys\nsys.exit(4)", Crashed, "SystemExit: 4"),
    "raise": ("raise RuntimeError('boom')", Crashed, "RuntimeError: boom"),
    "memory": ("x = bytearray(2 << 30)", Crashed, "MemoryError (more than 1 GiB)"),
    "print": ("print('x' * 10_000_000)\nimport os\nos._exit(0)", Crashed, "exit code 0"),
    "syntax": ("return )", DidNotBuild, "SyntaxError"),
    "daemon": (
        "import os, time\npid = os.fork()\nif pid == 0:\n    os.setsid()\n    time.sleep(3600)\n"
        "with open('daemon', 'w') as file: file.write(str(pid))",
        Scored,
        "",
    ),
    "silence": ("import os\nos.close(1)\nos.close(2)", Scored, ""),
}


@pytest.mark.quiet
async def test_every_misdeed_is_a_verdict_and_leaves_nothing_behind(
    evaluator: ProgramEvaluator, tmp_path: Path, descendants: Descendants
) -> None:
    task = task_in(tmp_path, timeout_s=LIMIT_S, memory_gib=1.0)
    found: dict[str, Verdict] = {}

    async def try_out(name: str, body: str) -> None:
        found[name] = await verdict_on(evaluator, task, body)

    async with anyio.create_task_group() as tasks:
        for name, (body, _, _) in MISDEEDS.items():
            tasks.start_soon(try_out, name, body)
    assert {name: type(verdict) for name, verdict in found.items()} == {
        name: kind for name, (_, kind, _) in MISDEEDS.items()
    }
    for name, (_, _, words) in MISDEEDS.items():
        assert words in getattr(found[name], "reason", ""), name
    await only_the_zygote_is_left(descendants)
    assert not psutil.pid_exists(int((tmp_path / "daemon").read_text()))


async def test_a_traceback_names_the_program_and_no_folder_of_this_host(
    evaluator: ProgramEvaluator, tmp_path: Path
) -> None:
    verdict = await verdict_on(evaluator, task_in(tmp_path), "return {}['x']")
    assert isinstance(verdict, Crashed)
    assert 'File "program.py", line 3, in solve' in verdict.log
    assert "zygote" not in verdict.log
    assert "ksearch-programs" not in verdict.log


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("{'speed': 1.0}", "no 'combined_score' (it returned: speed)"),
        ("{'combined_score': float('nan')}", "no finite number"),
        ("{'combined_score': 'high'}", "no finite number"),
        ("None", "NoneType"),
    ],
)
async def test_without_a_score_a_program_is_rejected_with_the_reason(
    evaluator: ProgramEvaluator, tmp_path: Path, returned: str, words: str
) -> None:
    task = task_in(tmp_path, EVALUATOR.replace("# before", f"return {returned}"))
    verdict = await verdict_on(evaluator, task, "pass")
    assert isinstance(verdict, Rejected)
    assert words in verdict.reason


async def test_an_object_with_metrics_and_artifacts_is_understood(evaluator: ProgramEvaluator, tmp_path: Path) -> None:
    fields = "metrics={'combined_score': 3}, artifacts={'hint': 'slow loop'}"
    text = "import types\n" + EVALUATOR.replace("# before", f"return types.SimpleNamespace({fields})")
    verdict = await verdict_on(evaluator, task_in(tmp_path, text), "pass")
    assert verdict == Scored(score=3.0, metrics={"combined_score": 3.0}, notes=("hint: slow loop",))


async def test_what_one_program_does_to_the_evaluator_the_next_does_not_see(
    evaluator: ProgramEvaluator, tmp_path: Path
) -> None:
    counting = "seen = []\n" + EVALUATOR.replace("# before", "seen.append(1)\n    return {'combined_score': len(seen)}")
    task = task_in(tmp_path, counting)
    assert [await verdict_on(evaluator, task, f"return {number}") for number in range(3)] == [
        Scored(score=1.0, metrics={"combined_score": 1.0})
    ] * 3


async def test_an_evaluator_imports_its_neighbours_and_not_our_packages(
    evaluator: ProgramEvaluator, tmp_path: Path
) -> None:
    (tmp_path / "messages.py").write_text("FACTOR = 10\n")
    (tmp_path / "data.txt").write_text("7")
    text = "import messages\n" + EVALUATOR.replace(
        "# before", "return {'combined_score': messages.FACTOR * int(open('data.txt').read())}"
    )
    assert await verdict_on(evaluator, task_in(tmp_path, text), "pass") == Scored(
        score=70.0, metrics={"combined_score": 70.0}
    )


async def test_an_evaluator_that_starts_threads_is_imported_for_each_program(
    evaluator: ProgramEvaluator, tmp_path: Path
) -> None:
    threaded = (
        "import threading\n"
        "lock, ready = threading.Lock(), threading.Event()\n"
        "def hold():\n    lock.acquire(); ready.set(); threading.Event().wait()\n"
        "threading.Thread(target=hold, daemon=True).start(); ready.wait()\n"
    )
    counted = EVALUATOR.replace("# before", "return {'combined_score': threading.active_count()}")
    verdict = await verdict_on(evaluator, task_in(tmp_path, threaded + counted), "pass")
    assert verdict == Scored(score=2.0, metrics={"combined_score": 2.0})


@pytest.mark.parametrize(
    ("evaluator_text", "words"),
    [
        ("import no_such_module\ndef evaluate(path): ...", "No module named 'no_such_module'"),
        ("raise SystemExit(2)\ndef evaluate(path): ...", "SystemExit: 2"),
        ("evaluate = 3", "defines no function evaluate"),
        ("import os\nos._exit(1)\ndef evaluate(path): ...", "ended its process"),
    ],
)
async def test_a_broken_evaluator_is_an_error_that_will_not_pass(
    evaluator: ProgramEvaluator, tmp_path: Path, evaluator_text: str, words: str, descendants: Descendants
) -> None:
    with pytest.raises(EvaluatorError) as caught:
        await verdict_on(evaluator, task_in(tmp_path, evaluator_text), "pass")
    assert words in str(caught.value)
    assert caught.value.permanent
    assert not descendants()


async def test_an_evaluator_that_was_changed_meanwhile_is_an_error(evaluator: ProgramEvaluator, tmp_path: Path) -> None:
    task = task_in(tmp_path)
    (tmp_path / "evaluator.py").write_text(EVALUATOR + "\n")
    with pytest.raises(EvaluatorError, match="changed since"):
        await verdict_on(evaluator, task, "pass")


async def test_a_program_that_nobody_waits_for_is_killed(
    evaluator: ProgramEvaluator, tmp_path: Path, descendants: Descendants
) -> None:
    task = task_in(tmp_path)
    await verdict_on(evaluator, task, "pass")
    started = tmp_path / "started"
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            body = f"open({str(started)!r}, 'w').close()\nimport time\ntime.sleep(3600)"
            tasks.start_soon(verdict_on, evaluator, task, body)
            while not started.exists():  # noqa: ASYNC110 - another process says so
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        while len(descendants()) > 1:  # noqa: ASYNC110 - another process is to end
            await anyio.sleep(0.01)


async def test_a_host_that_died_is_started_anew(
    evaluator: ProgramEvaluator, tmp_path: Path, descendants: Descendants
) -> None:
    task = task_in(tmp_path)
    await verdict_on(evaluator, task, "pass")
    (zygote,) = descendants()
    zygote.kill()
    with suppress(EvaluatorError):
        await verdict_on(evaluator, task, "pass")
    assert fate_of(await verdict_on(evaluator, task, "pass")) == "scored"


def test_nothing_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    task_in(tmp_path)
    started = tmp_path / "started"
    script = f"""
import anyio, os
from evaluators.programs.evaluator import ProgramEvaluator
from tests.evaluators.programs.words import job, program, task_in
from pathlib import Path
from typing import TypeAlias
async def main():
    body = "import os, time\\nos.fork()\\nos.fork()\\nopen({str(started)!r}, 'w').close()\\ntime.sleep(3600)"
    evaluator = ProgramEvaluator(environment=dict(os.environ))
    await evaluator.evaluate(job(task_in(Path({str(tmp_path)!r})), program(body)))
anyio.run(main)
"""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    watched = psutil.Process(process.pid)
    while not started.exists():
        assert process.poll() is None
        psutil.wait_procs([], timeout=0.05)
    below = watched.children(recursive=True)
    assert len(below) >= 4
    process.kill()
    process.wait()
    assert still_running(below) == []
    assert list(scratch.iterdir()) == []


async def test_a_program_is_its_own_artifact() -> None:
    candidate = program("pass")
    report = await ProgramBuilder().build(build_job(candidate, probe_interpreter()))
    assert report.outcome == Built(artifact_id=candidate.candidate_id)


def test_no_torch_is_imported(tmp_path: Path) -> None:
    task_in(tmp_path)
    code = (
        "import sys, evaluators.programs.evaluator, evaluators.programs.task; "
        "sys.exit(bool({'torch', 'numpy', 'openai'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_words_of_these_tests_make_sense() -> None:
    assert "# body" in PROGRAM
    assert "# before" in EVALUATOR
