"""KernelBench's problems as every source's tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.task_sources import MARK, TaskSourceContract

PROBLEM = """import torch

open({mark!r}, "w")


class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()


def get_inputs():
    return [torch.rand(4, 8)]
"""
WHOLE = PROBLEM + "\n\ndef get_init_inputs():\n    return []\n"


def checkout(folder: Path, text: str) -> str:
    path = folder / "kb" / "KernelBench" / "level2" / "7_Relu.py"
    path.parent.mkdir(parents=True)
    path.write_text(text.format(mark=str(folder / MARK)))
    return f"{folder}/kb/2/7"


class TestKernelBench(TaskSourceContract):
    source = "kernelbench"

    @pytest.fixture
    def selector(self, tmp_path: Path) -> str:
        return checkout(tmp_path, WHOLE)

    @pytest.fixture
    def broken(self, tmp_path: Path) -> tuple[str, tuple[str, ...]]:
        return checkout(tmp_path, PROBLEM), ("7_Relu.py", "get_init_inputs")
