"""What the guides tell people to type is understood, and the files that they have them save do their work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ksearch_async.cli import app
from tests.ksearch_async.test_cli import ksearch

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
FIRST_HOUR = (GUIDES / "first-hour.md").read_text()
FILES = ("add_norm.py", "use_kernel.py", "try_kernel.py")
"""As the guide has them saved, in its order."""

NAIVE_KERNEL = """
#include <cmath>
#include <cstdint>
extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* x = static_cast<const float*>(inputs[0]);
    const float* residual = static_cast<const float*>(inputs[1]);
    const float* weight = static_cast<const float*>(inputs[2]);
    float* output = static_cast<float*>(outputs[0]);
    const int64_t rows = shapes[3][0] * shapes[3][1], columns = shapes[2][0];
    for (int64_t row = 0; row < rows; ++row) {
        double sum = 0;
        for (int64_t c = row * columns; c < (row + 1) * columns; ++c) sum += std::pow(x[c] + residual[c], 2);
        const float scale = 1 / std::sqrt(float(sum / columns) + 1e-6f);
        for (int64_t c = 0; c < columns; ++c) {
            output[row * columns + c] = (x[row * columns + c] + residual[row * columns + c]) * scale * weight[c];
        }
    }
    return 0;
}
"""


def commands(text: str) -> list[str]:
    """Return what the text tells people to type after a `$`, and what it puts in backticks, of our own commands."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    typed = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ksearch")]
    return [*typed, *re.findall(r"`(ksearch [a-z][^`…]*)`", text)]


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the files that the first hour has people save."""
    blocks = re.findall(r"```python\n(.*?)```", FIRST_HOUR, re.DOTALL)
    for name, text in zip(FILES, blocks, strict=True):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("command", commands(FIRST_HOUR))
def test_every_command_of_the_first_hour_is_understood(command: str) -> None:
    words = [word.replace("…", "x") for word in shlex.split(command, comments=True)[1:]]
    app.parse_args(words, exit_on_error=False, print_error=False)


def test_the_problem_of_the_first_hour_has_the_tensors_that_it_says(desk: Path) -> None:
    done = ksearch("tasks", "show", "add_norm.py", "--tensors", cwd=desk)
    assert done.returncode == 0, done.stderr
    for name in ("x", "residual", "weight", "output"):
        assert re.search(rf"\b{name}\b", done.stdout), done.stdout


def test_a_kernel_is_built_called_and_compared_as_the_first_hour_says(desk: Path) -> None:
    (desk / "kernel.cpp").write_text(NAIVE_KERNEL)
    command = [sys.executable, "try_kernel.py", "kernel.cpp"]
    done = subprocess.run(command, cwd=desk, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "the same results"


def test_a_kernel_that_is_wrong_is_noticed_by_the_guides_comparison(desk: Path) -> None:
    (desk / "kernel.cpp").write_text(NAIVE_KERNEL.replace("* scale", "* scale * 1.01f"))
    command = [sys.executable, "try_kernel.py", "kernel.cpp"]
    done = subprocess.run(command, cwd=desk, capture_output=True, text=True, timeout=100, check=False)
    assert "not close" in done.stderr
