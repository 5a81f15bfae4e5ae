"""A problem of TritonBench is judged, on a CPU: its gold passes, and what is wrong with others is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks import load_task
from evaluators.tasks.tritonbench.packing import candidate_of, reference_candidate
from ksearch_async.evaluation.judging import open_judge
from messages.verdicts import Measured, fate_of, reason_of
from tests.evaluators.tasks.tritonbench.problems import checkout

ZEROS = (
    "import torch\n\ndef shift(x, by=1.0):\n    return torch.zeros_like(x)\n\ndef shift_(x, *, by):\n    x.zero_()\n"
)
SHAPE = ZEROS.replace("torch.zeros_like(x)", "(x + by)[None]")
SYNTAX = "def shift(x:\n"


@pytest.mark.anyio
@pytest.mark.timeout(300)  # torch, triton and numpy are imported by three processes
async def test_a_gold_passes_and_wrong_ones_are_told_why(tmp_path: Path) -> None:
    task = load_task(f"tritonbench:{checkout(tmp_path)}#G/shift:cpu")
    wanted = ((ZEROS, "wrong", "elements of"), (SHAPE, "wrong", "shape"), (SYNTAX, "did_not_build", "SyntaxError"))
    async with open_judge(task, language="python") as judge:
        gold = (await judge.evaluate(reference_candidate(task))).verdict
        assert isinstance(gold, Measured), reason_of(gold)
        assert not gold.timed
        for text, fate, words in wanted:
            verdict = (await judge.evaluate(candidate_of(text, ("shift", "shift_")))).verdict
            assert fate_of(verdict) == fate, reason_of(verdict)
            assert words in reason_of(verdict)
