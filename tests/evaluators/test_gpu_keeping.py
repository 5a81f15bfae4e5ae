"""What a judge keeps of a GPU's memory from one candidate to the next."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder
from evaluators.hardware.target import probe_target
from evaluators.local import LocalEvaluator
from messages.base import Language
from messages.events import Built
from messages.tasks import Candidate, SourceFile, TaskRules, TaskSpec
from messages.verdicts import Measured, Outpaced, Unstable, Verdict
from tests.evaluators.test_gpu import DEVICE, KERNEL, TASK
from tests.evaluators.words import build_job, evaluate_job
from tests.gpu.memory import used_mib

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.gpu,
    pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU"),
]

CORRECT = Measured | Outpaced | Unstable
FILES: dict[Language, tuple[str, str]] = {"python": ("main.py", "ModelNew"), "cuda": ("kernel.cu", "ksearch_run")}
HUNGRY = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        free, total = torch.cuda.mem_get_info()
        space = torch.empty(total * 4 // 10, dtype=torch.uint8, device=x.device)
        return 2 * x + 1
"""
"""Takes two fifths of the GPU's memory, which it may: nobody needs it but the judge, for what comes later."""
RETIMED_MIB = 64
"""What may come and go with torch's allocator; what one timing of the small task is on takes 200."""


async def judged(
    language: Language, text: str, task: TaskSpec, builder: LocalBuilder, evaluator: LocalEvaluator
) -> Verdict:
    path, entry_point = FILES[language]
    candidate = Candidate(language=language, entry_point=entry_point, files=(SourceFile(path=path, text=text),))
    target = probe_target(language, DEVICE)
    built = (await builder.build(build_job(candidate, target))).outcome
    assert isinstance(built, Built), built
    return (await evaluator.evaluate(evaluate_job(candidate, built.artifact_id, target, task))).verdict


async def test_what_a_judge_keeps_for_later_candidates_takes_no_memory_from_this_one(tmp_path: Path) -> None:
    text, rules = TASK.text.replace("8192, 8192", "32768, 16384"), TaskRules(library_calls="allow")
    large = replace(TASK, text=text, rules=rules)
    builder, evaluator = LocalBuilder(tmp_path), LocalEvaluator(tmp_path, device=DEVICE)
    verdicts: list[Verdict] = []
    try:
        for number in range(6):
            text = f"{HUNGRY}\n# {number}\n" if number % 2 else f"{HUNGRY.replace('* 4', '* 0')}\n# {number}\n"
            verdicts.append(await judged("python", text, large, builder, evaluator))
    finally:
        builder.close()
        await evaluator.aclose()
    assert not [verdict for verdict in verdicts if not isinstance(verdict, CORRECT)]


async def test_a_judge_takes_no_more_memory_each_time_that_a_candidate_is_timed(tmp_path: Path) -> None:
    small = replace(TASK, text=TASK.text.replace("8192, 8192", "512, 1024"))
    builder, evaluator = LocalBuilder(tmp_path), LocalEvaluator(tmp_path, device=DEVICE)
    used: list[int] = []
    try:
        for _ in range(5):
            assert isinstance(await judged("cuda", KERNEL, small, builder, evaluator), CORRECT)
            used.append(used_mib())
    finally:
        builder.close()
        await evaluator.aclose()
    assert used[-1] - used[1] <= RETIMED_MIB, used
