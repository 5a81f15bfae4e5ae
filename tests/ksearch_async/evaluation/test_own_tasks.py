"""Tasks straight from Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from evaluators.tasks import load_task
from ksearch_async import ConfigError, Input, evaluate_many, task, task_from_module

EPSILON = 1e-6
UNUSED = object()


def _normed(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON)


@task(
    inputs=[
        Input(name="x", shape=("rows", 64)),
        Input(name="weight", shape=(64,), distribution="normal(1, 0.1)"),
        Input(name="scale", value=2),
    ],
    workloads={"small": {"rows": 32}, "odd": {"rows": 31}},
    hidden_workloads={"held": {"rows": 17}},
    rtol=1e-3,
    library_calls="allow",
)
def own_norm(x: torch.Tensor, weight: torch.Tensor, scale: float) -> torch.Tensor:
    """RMSNorm, "scaled":
    as an example.
    """
    return _normed(x) * weight * scale


class Gate(nn.Module):
    """A module with parameters."""

    def __init__(self, columns: int, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        self.kind = kind

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(x * self.weight)[index]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_decorated_function_is_called_as_before() -> None:
    x = torch.rand(3, 64)
    torch.testing.assert_close(own_norm(x, torch.ones(64), 2.0), _normed(x) * 2)


def test_a_decorated_function_is_a_path_to_a_task_with_what_it_names() -> None:
    spec = load_task(os.fspath(own_norm))
    assert (spec.name, spec.entry_point, spec.tolerance.rtol) == ("own_norm", "own_norm", 1e-3)
    assert [workload.name for workload in spec.workloads] == ["small", "odd", "held"]
    reference = spec.text
    for wanted in ("import torch\n", "EPSILON = 1e-6\n", "def _normed(", "def own_norm("):
        assert wanted in reference
    for unwanted in ("UNUSED", "@task", "import task", "class Gate"):
        assert unwanted not in reference
    assert os.fspath(own_norm) == os.fspath(own_norm)


def test_a_task_can_be_kept_as_a_folder(tmp_path: Path) -> None:
    folder = own_norm.write(tmp_path / "kept")
    assert load_task(str(folder)).task_id == load_task(os.fspath(own_norm)).task_id


def test_a_function_inside_another_is_refused() -> None:
    with pytest.raises(ConfigError, match="'inner' must be defined at the top level of a file"):

        @task(inputs=[Input(name="x", shape=(3,))], workloads={"one": {"n": 1}})
        def inner(x: torch.Tensor) -> torch.Tensor:
            return x


def test_a_module_is_a_problem_with_inputs_like_the_examples() -> None:
    made = task_from_module(
        Gate, [torch.linspace(0, 1, 128).reshape(8, 16), torch.arange(8)], init_inputs=[16, "sigmoid"]
    )
    spec = load_task(os.fspath(made))
    assert (spec.name, spec.source, spec.calling) == ("Gate", "kernelbench", "module")
    assert "class Model(nn.Module):" in spec.text
    assert "torch.randn((8, 16), dtype=torch.float32) * 0.3 + 0.5" in spec.text
    assert "torch.randint(0, 8, (8,), dtype=torch.int64)" in spec.text
    assert "return [16, 'sigmoid']" in spec.text
    with pytest.raises(ConfigError, match="takes a class and what it is made with, not an instance of Gate"):
        task_from_module(Gate(3, "a"), [])  # type: ignore[arg-type]


@pytest.mark.long
@pytest.mark.anyio
async def test_both_can_be_evaluated() -> None:
    kernel = "def own_norm(x, weight, scale):\n    x = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()\n"
    sources = [f"{kernel}    return x * weight * scale\n", f"{kernel}    return x * weight\n"]
    right, wrong = await evaluate_many(own_norm, sources, language="python")
    assert right.fate in {"measured", "unstable", "outpaced"}, right
    assert wrong.fate == "wrong", wrong
