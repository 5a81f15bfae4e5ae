"""Exported modules in Triton: nothing is built; without a GPU they run in Triton's interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from evaluators.hardware.target import probe_target
from ksearch_async.export import Winner
from messages.tasks import Candidate, SourceFile
from tests.contracts.exports import CALL, TASK, TENSORS, VERDICT, ExportContract
from tests.evaluators.languages.triton.words import RIGHT
from tests.evaluators.words import COLUMNS, ROWS


class TestExportedTriton(ExportContract):
    spoil = ("mean = tl.sum(tl.abs(x), axis=0) / columns", "mean = tl.sum(tl.abs(x), axis=0) / (columns + 9)")
    environment: ClassVar[dict[str, str]] = {"TRITON_INTERPRET": "1"}

    @pytest.fixture(scope="class")
    @classmethod
    def winner(cls) -> Winner:
        return Winner(
            task=TASK,
            tensors=TENSORS,
            candidate=Candidate(
                language="triton", entry_point="ksearch_run", files=(SourceFile(path="kernel.py", text=RIGHT),)
            ),
            target=probe_target("triton"),
            verdict=VERDICT,
            device="CPU",
            purpose="confirm",
            measured_at="2026-11-20T12:00:00+00:00",
        )

    def test_on_a_cpu_it_says_that_the_interpreter_must_be_asked_for(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(self, "environment", {"TRITON_INTERPRET": ""})
        call = CALL.format(rows=ROWS, columns=COLUMNS, device="cpu")
        done = self.python(folder, "-c", f"import sys; sys.path.insert(0, '.')\n{call}")
        assert "ValueError: the tensors are on the CPU, where Triton only has an interpreter" in done.stderr
