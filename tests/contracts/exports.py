"""What every exported module does, whatever its kernel is written in. A language's tests are a winner and a spoilt one.

Modules are run by a fresh interpreter that sees nothing of ours.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from ksearch_async.export import Winner, write_module
from messages.tasks import TensorSpec
from messages.verdicts import CallCheck, Interval, Measured
from tests.evaluators.words import COLUMNS, ROWS, SMALL_TASK

TASK = SMALL_TASK
TENSORS = (
    TensorSpec(name="x", role="input", shape=(ROWS, COLUMNS), dtype="float32"),
    TensorSpec(name="weight", role="parameter", shape=(COLUMNS,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(ROWS, COLUMNS), dtype="float32"),
)
VERDICT = Measured(
    timed=True,
    latency_us=10.0,
    reference_latency_us=20.0,
    speedup_vs_reference=2.0,
    speedup_interval=Interval(low=1.9, high=2.1),
    pairs=40,
    checks=(CallCheck(family="given", max_abs_error=1e-7, error_ratio=0.01),),
    notes=('caches begin cold: "really"\\', "a\nsecond line"),
)

CALL = """
import sys
import torch
import exported

x, weight = torch.rand({rows}, {columns}, device={device!r}), torch.rand({columns}, device={device!r})
x = x.t().contiguous().t()
before = x.clone()
y = exported.forward(x, weight)
assert torch.equal(x, before)
expected = x * weight / (1 + x.abs().mean(dim=-1, keepdim=True))
torch.testing.assert_close(y, expected)
assert exported.forward(x, weight).data_ptr() != y.data_ptr()
ours = [name for name in sys.modules if name.split(".")[0] in {{"ksearch_async", "evaluators", "messages", "msgspec"}}]
assert not ours, ours

def complaint(*tensors):
    try:
        exported.forward(*tensors)
    except (TypeError, ValueError, RuntimeError) as error:
        return f"{{type(error).__name__}}: {{error}}"
    raise AssertionError("it was taken")

print(complaint(x[:3], weight))
print(complaint(x, weight.double()))
print(complaint(x, [1.0]))
print(complaint(x.to("meta"), weight.to("meta")))
print(complaint(x, weight.to("meta")))
print(complaint(x, weight.requires_grad_()))
"""


def lay(folder: Path, winner: Winner) -> Path:
    """Write the exported module into the folder."""
    (folder / "exported.py").write_text(write_module(winner), encoding="utf-8", newline="")
    return folder


class ExportContract:
    """Inherit it, with a winner and text that spoils its kernel."""

    device = "cpu"
    environment: ClassVar[dict[str, str]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def winner(cls) -> Winner:
        """Return a right kernel for the small task."""
        raise NotImplementedError

    spoil: tuple[str, str]
    """What in its source is replaced by what, so that it is wrong."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, tmp_path_factory: pytest.TempPathFactory, winner: Winner) -> Path:
        """Return where the module lies; whoever comes first builds it."""
        return lay(tmp_path_factory.mktemp("exported"), winner)

    @pytest.fixture
    def fresh(self, tmp_path: Path, winner: Winner) -> Path:
        """Return a folder of the test's own, in which nothing is built."""
        return lay(tmp_path, winner)

    def python(self, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run Python where it sees nothing of ours."""
        return subprocess.run(
            [sys.executable, "-P", *words],
            cwd=folder,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "KSEARCH_EXPORT_CACHE": str(folder / "cache"),
                **self.environment,
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    def test_it_is_called_with_the_references_own_terms_and_refuses_the_rest_in_clear_words(self, folder: Path) -> None:
        call = CALL.format(rows=ROWS, columns=COLUMNS, device=self.device)
        done = self.python(folder, "-c", f"import sys; sys.path.insert(0, '.')\n{call}")
        assert done.returncode == 0, done.stderr
        shape, dtype, kind, device, mixed, grad = done.stdout.splitlines()
        assert shape == f"ValueError: x has shape (3, {COLUMNS}); the kernel was made for ({ROWS}, {COLUMNS})"
        assert dtype == "TypeError: weight is float64; the kernel was made for float32"
        assert kind == "TypeError: weight is no dense tensor, but list"
        assert "on meta" in device
        assert mixed.startswith("ValueError: weight is on meta, and x on ")
        assert grad.startswith("RuntimeError: the kernel has no backward")

    def test_its_self_test_compares_with_the_embedded_reference(self, folder: Path) -> None:
        done = self.python(folder, "exported.py", "--self-test", "--seed", "7")
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout.splitlines()
        assert said[0].startswith("reference  small, by PyTorch ")
        assert said[1].startswith("agrees     seed 7: output: largest error ")
        assert said[-1] == "passed     4 of 4 calls agree with the reference"

    @pytest.mark.long
    def test_its_self_test_fails_where_the_kernel_is_spoilt(self, fresh: Path) -> None:
        text = (fresh / "exported.py").read_text()
        assert text.count(self.spoil[0]) == 1
        (fresh / "exported.py").write_text(text.replace(*self.spoil))
        done = self.python(fresh, "exported.py", "--self-test")
        assert done.returncode == 1, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "FAILED     0 of 4 calls agree with the reference"

    def test_its_receipt_is_the_verdict_and_the_first_lines_say_it(self, folder: Path, winner: Winner) -> None:
        done = self.python(folder, "exported.py", "--receipt")
        receipt = json.loads(done.stdout)
        assert receipt["candidate_id"] == winner.candidate.candidate_id
        assert receipt["verdict"]["speedup_interval"] == {"low": 1.9, "high": 2.1}
        assert receipt["verdict"]["notes"] == list(VERDICT.notes)
        header = ast.get_docstring(ast.parse((folder / "exported.py").read_bytes())) or ""
        assert "2.00x the reference (eager PyTorch) [1.90, 2.10], 95 % interval over 40 interleaved pairs" in header
        assert 'note       caches begin cold: "really"\\\nnote       a second line\n' in header
        assert winner.candidate.candidate_id in header

    def test_the_source_in_it_is_what_was_judged_to_the_byte(self, folder: Path, winner: Winner) -> None:
        tree = ast.parse((folder / "exported.py").read_bytes())
        (sources,) = (
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCES"
        )
        assert ast.literal_eval(sources) == {file.path: file.text for file in winner.candidate.files}

    def test_two_exports_of_one_kernel_are_the_same(self, winner: Winner) -> None:
        assert write_module(winner) == write_module(winner)
