"""Baseline workers of a GPU: the eager reference, and `torch.compile` of it, each in a process of its own.

A worker has a GPU context of its own, and the same harness as runners; see `baseline.py`.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import torch

from evaluators.hardware.vendors.nvidia.tensors import view_memory
from evaluators.judge.data.arena import GpuArea, SharedArea, tensors_in
from evaluators.judge.protocol import Baseline
from evaluators.judge.reference.baseline import (
    KEEP,
    BaselineWorker,
    Reference,
    answer_frames,
    copy_outputs,
    receive_layout,
)
from evaluators.judge.reference.problem import Problem, Tensors
from evaluators.runners.base import CALL, EMPTY
from evaluators.runners.cuda import Harness
from messages.tasks import TaskSpec, Workload

DEVICE = "cuda:0"
"""The one GPU that a judge sees."""
_WARM_UPS = 10


class GpuBaselineSide(BaselineWorker):
    """A worker on a GPU."""

    def __init__(
        self, task: TaskSpec, kind: Baseline, workload: Workload | None = None, *, close_fds: Sequence[int]
    ) -> None:
        """Fork, before this process uses the GPU; `kind`: how the model is compiled (empty: not at all)."""
        self.kind: Baseline = kind
        self._program = kind or "reference"
        super().__init__(
            f"the worker of the {self._program}",
            lambda end, nonce: _serve(end, task, workload, kind, nonce),
            close_fds,
        )

    def attach(self, inputs: SharedArea, problem: Problem) -> None:
        """Let it compute on shared memory, and warm it up, which includes the compilation by `torch.compile`."""
        self._attach(inputs, GpuArea("results", problem.output_specs, guarded=False), problem)
        for _ in range(_WARM_UPS):
            self.call()

    def _failed(self, status: int) -> str:
        return f"the {self._program} failed in its worker (status {status})"


def _serve(control: socket.socket, task: TaskSpec, workload: Workload | None, kind: Baseline, nonce: int) -> int:
    """Answer frames until the judge is gone. An exception of the problem ends the worker; the judge's log has it."""
    layout, *fds = receive_layout(control)
    harness = Harness()
    sizes = {"inputs_bytes": layout.inputs_bytes, "outputs_bytes": layout.results_bytes}
    bases = harness.map_areas(sizes, *fds)
    inputs = [spec for spec in layout.specs if spec.role != "output"]
    outputs_specs = [spec for spec in layout.specs if spec.role == "output"]
    given = tensors_in(view_memory(bases["inputs"], layout.inputs_bytes), inputs)
    results = tensors_in(view_memory(bases["outputs"], layout.results_bytes), outputs_specs)
    reference = Reference(layout, [given], task, workload, DEVICE)
    if kind == "torch.compile":
        reference.model.compile()
    outputs: Tensors = ()

    def call() -> int:
        nonlocal outputs
        # Freed first, as the previous result would be in a program of its own.
        outputs = ()
        outputs = reference.run(0)
        return 0

    def act(operation: int, _arrangement: int) -> tuple[int, int]:
        if operation == CALL:
            return harness.span(call)
        if operation == EMPTY:
            return harness.span(lambda: 0)
        if operation == KEEP:
            copy_outputs(results, outputs)
            torch.cuda.synchronize()
        return 0, 0

    with torch.cuda.stream(torch.cuda.ExternalStream(harness.stream)):  # type: ignore[no-untyped-call]
        return answer_frames(control, nonce, act)
