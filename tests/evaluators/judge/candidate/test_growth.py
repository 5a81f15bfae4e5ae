"""A leak is told with its size per call; what is noise, or ends, is not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from evaluators.judge.candidate.bench import Growth, steady_growth
from tests.evaluators.judge.running import running

LEAKING = """
import os, sys
kept = []
for line in sys.stdin:
    kept.append(bytearray(b"x" * (1 << 20)))
    os.dup(0)
    os.write(1, b"done\\n")
"""


@pytest.mark.parametrize(
    ("values", "per_call"),
    [
        ([5 * call for call in range(16)], 5.0),
        ([7] * 16, 0.0),
        ([0, 50, 90, 100, *[101] * 12], 0.0),
        ([100 + call % 2 for call in range(24)], 0.0),
        ([*[10] * 12, 20, *[20] * 11], 0.0),
        ([5 * call for call in range(6)], 0.0),
        ([8 * (call // 4) for call in range(40)], pytest.approx(2.0, rel=0.2)),
    ],
)
def test_growth_counts_if_it_goes_on_to_the_end(values: list[int], per_call: float) -> None:
    assert steady_growth(values, list(range(len(values)))) == per_call


def test_growth_is_told_per_call_and_not_per_look() -> None:
    assert steady_growth([10 * look for look in range(16)], [2 * look for look in range(16)]) == 5.0


def test_memory_and_descriptors_of_a_process_are_seen() -> None:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", LEAKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin
        assert process.stdout
        growth = Growth(process.pid)
        for call in range(16):
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"done\n"
            growth.look(call)
        process.stdin.close()
    memory, descriptors = growth.notes()
    assert memory.startswith("leak: its memory grows by ")
    assert descriptors == "leak: its open file descriptors grow by 1.0 per call"


def test_a_process_that_has_ended_has_not_grown() -> None:
    with running("print(flush=True); input()") as pid:
        growth = Growth(pid)
    for call in range(20):
        growth.look(call)
    assert list(growth.notes()) == []
