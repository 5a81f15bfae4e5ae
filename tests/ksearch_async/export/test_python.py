"""Exported torch modules: made with the reference's arguments, given the state that `forward` is called with."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.languages.python.support import PYTHON
from ksearch_async.export import Winner, check_exportable
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile
from tests.contracts.exports import TASK, TENSORS, VERDICT, ExportContract

MODULE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(columns))
        self.packed = None
        self.kept = torch.empty(0)

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.detach().clone()
        self.kept = x * self.packed / (1 + x.abs().mean(dim=-1, keepdim=True))
        return self.kept
"""

STATE = """
import sys; sys.path.insert(0, ".")
import torch
import exported

torch.manual_seed(1)
expected = torch.rand(3)
torch.manual_seed(1)
x, weight = torch.rand(64, 256), torch.rand(256)
torch.manual_seed(1)
first = exported.forward(x, weight)
assert torch.equal(torch.rand(3), expected), "the generator was disturbed"
(kept,) = exported._held
assert torch.equal(exported.forward(x, weight), first)
assert exported._held[0] is kept, "it was made anew for nothing"
weight.mul_(2)
torch.testing.assert_close(exported.forward(x, weight), first * 2)
torch.testing.assert_close(exported.forward(x, weight / 2), first)
with torch.inference_mode():
    for factor in (1, 2):
        torch.testing.assert_close(exported.forward(x, torch.rand(256).fill_(factor)), first / (weight / 2) * factor)
torch.testing.assert_close(exported.forward(x, weight), first * 2)
"""


class TestExportedPython(ExportContract):
    spoil = (
        "/ (1 + x.abs().mean(dim=-1, keepdim=True))\n        return self.kept",
        "/ (1 + x.abs().mean())\n        return self.kept",
    )

    @pytest.fixture(scope="class")
    @classmethod
    def winner(cls) -> Winner:
        return Winner(
            task=TASK,
            tensors=TENSORS,
            candidate=Candidate(
                language="python", entry_point="ModelNew", files=(SourceFile(path="model.py", text=MODULE),)
            ),
            target=PYTHON.probe_target("cpu"),
            verdict=VERDICT,
            device="CPU",
            purpose="confirm",
            measured_at="2026-11-20T12:00:00+00:00",
        )

    def test_other_parameters_make_it_anew_and_no_generator_is_disturbed(self, folder: Path) -> None:
        done = self.python(folder, "-c", STATE)
        assert done.returncode == 0, done.stderr


def test_a_module_of_several_files_is_refused() -> None:
    files = tuple(SourceFile(path=name, text=MODULE) for name in ("model.py", "other.py"))
    with pytest.raises(ConfigError, match="has 2 Python files"):
        check_exportable(TASK, Candidate(language="python", entry_point="ModelNew", files=files))
