"""Searches over plain Python programs, from the command line, with a real endpoint on this host."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from subprocess import CompletedProcess

import anyio
import pytest

from tests.actors.llm.endpoint import Reply, completion, endpoint, failure
from tests.evaluators.programs.words import PROGRAM, task_in

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

POISONS = {
    2: "import time\ntime.sleep(3600)",
    3: "while True: pass",
    4: "import ctypes\nctypes.string_at(0)",
    5: "import os\nos._exit(3)",
    6: "raise RuntimeError('boom')",
    7: "x = bytearray(64 << 30)",
}
ROUNDS = 12


def answer(number: int) -> Reply:
    """Return the n-th program, counted from 0; some are bad, and the tenth question is refused."""
    if number == 9:
        return failure(400, "not that one")
    body = POISONS.get(number, f"return {number / 10}").replace("\n", "\n    ")
    return completion(f"Here.\n\n```python\n{PROGRAM.replace('# body', body)}```\n")


async def ksearch(*words: str, cwd: Path, **environment: str) -> CompletedProcess[bytes]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("KSEARCH_")}
    command = [sys.executable, "-m", "ksearch_async", *words]
    with anyio.fail_after(60):
        return await anyio.run_process(command, cwd=cwd, env={**plain, **environment}, check=False)


async def run(folder: Path, url: str, *more: str, **environment: str) -> CompletedProcess[bytes]:
    task = ("run", "initial.py", "--score-with", "evaluator.py", "--eval-timeout", "2", "--eval-memory", "4")
    search = ("--world-model", "off", "--branches", "6", "--concurrency", "3", "--evaluators", "3")
    return await ksearch(*task, "--model", "m", "--base-url", url, *search, *more, cwd=folder, **environment)


async def shown(folder: Path, *words: str) -> dict[str, object]:
    done = await ksearch(*words, "--json", cwd=folder)
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


async def test_a_search_survives_every_bad_program_and_a_refused_question(tmp_path: Path) -> None:
    task_in(tmp_path)
    async with endpoint(answer) as server:
        done = await run(tmp_path, server.url, "--max-rounds", str(ROUNDS))
    assert done.returncode == 0, done.stderr
    assert len(server.requests) == ROUNDS + 1
    summary = await shown(tmp_path, "show")
    assert summary["rounds"] == ROUNDS
    assert summary["fates"] == {"scored": 6, "timed_out": 2, "crashed": 4, "unusable": 1}
    best = summary["best"]
    assert isinstance(best, dict)
    assert (best["score"], best["initial_score"]) == (1.2, 0.5)
    told = done.stdout.decode()
    for words in ("initial program: scored: 0.5", "score 1.2, the initial program 0.5", "signal 11", "HTTP 400"):
        assert words in told


async def test_what_was_found_can_be_shown_and_scored_again(tmp_path: Path) -> None:
    task_in(tmp_path)
    async with endpoint(answer) as server:
        done = await run(tmp_path, server.url, "--max-rounds", "2")
    (again,) = (line for line in done.stdout.decode().splitlines() if line.startswith("check it"))
    evaluated = await shown(tmp_path, *again.split()[3:])
    assert (evaluated["verdict"], evaluated["score"]) == ("scored", 0.1)
    source = await ksearch("best", "--source", cwd=tmp_path)
    assert b"return 0.1" in source.stdout
    tree = (await ksearch("tree", cwd=tmp_path)).stdout.decode()
    assert "initial program  [score 0.5]" in tree
    assert "score 0.1" in tree


async def test_a_kill_costs_the_questions_under_way_and_each_is_asked_again_under_its_key(tmp_path: Path) -> None:
    task_in(tmp_path)
    is_killed = False

    def reply(number: int) -> Reply:
        if number >= 5 and not is_killed:
            return Reply(hangs=True)
        return completion(f"```python\n{PROGRAM.replace('# body', f'return {number / 10}')}```\n")

    async with endpoint(reply) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, tmp_path, server.url, "--max-rounds", str(ROUNDS))
            with anyio.fail_after(60):
                while len(server.requests) < 8:  # noqa: ASYNC110 - another process asks
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()  # anyio kills what `run_process` has started
        is_killed = True
        done = await ksearch("resume", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (await shown(tmp_path, "show"))["rounds"] == ROUNDS
    lines = [line.lower() for head in server.heads for line in head.split("\r\n")]
    keys = Counter(line for line in lines if line.startswith("idempotency-key:"))
    assert sorted(keys.values()) == [1] * (ROUNDS - 3) + [2] * 3


async def test_without_a_better_program_the_exit_status_is_1(tmp_path: Path) -> None:
    task_in(tmp_path)
    async with endpoint(answer) as server:
        done = await run(tmp_path, server.url, "--max-rounds", "1")
    assert done.returncode == 1
    assert b"not better than it" in done.stdout


async def test_an_evaluator_that_cannot_be_imported_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    task_in(tmp_path, "import no_such_module\ndef evaluate(path): ...")
    async with endpoint(answer) as server:
        done = await run(tmp_path, server.url)
    assert done.returncode == 3
    assert b"No module named 'no_such_module'" in done.stderr


async def test_a_run_whose_evaluator_has_changed_is_not_resumed(tmp_path: Path) -> None:
    task_in(tmp_path)
    async with endpoint(answer) as server:
        await run(tmp_path, server.url, "--max-rounds", "1")
        (tmp_path / "evaluator.py").write_text("def evaluate(path): return {'combined_score': 9.0}\n")
        done = await ksearch("resume", "--max-rounds", "2", cwd=tmp_path)
    assert done.returncode == 2
    assert b"has changed since" in done.stderr


async def test_programs_need_a_model(tmp_path: Path) -> None:
    task_in(tmp_path)
    done = await ksearch("run", "initial.py", "--score-with", "evaluator.py", cwd=tmp_path)
    assert done.returncode == 2
    assert b"hint: name a model: --model NAME" in done.stderr
    assert not (tmp_path / "runs").exists()


async def test_keys_are_kept_from_programs(tmp_path: Path) -> None:
    task_in(tmp_path)
    peek = "import os\nreturn float(any(name.endswith('API_KEY') for name in os.environ)) + ('HOME' in os.environ)"
    text = f"```python\n{PROGRAM.replace('# body', peek.replace(chr(10), chr(10) + '    '))}```\n"
    async with endpoint(lambda _: completion(text)) as server:
        done = await run(tmp_path, server.url, "--max-rounds", "1", KSEARCH_API_KEY="sk-1", OPENAI_API_KEY="sk-2")
    assert b"scored: 1 " in done.stdout, done.stdout
