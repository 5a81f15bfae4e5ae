"""Baseline workers of a GPU: the eager reference, and `torch.compile` of it, each in a process of its own.

A worker is forked from the judge before anything there touches the GPU, and has a context of its own. It computes on
the very memory that candidates are given, with the harness that their runners have. Frames as in `baseline.py`.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import msgspec
import torch

from evaluators.hardware.vendors.nvidia.tensors import view_memory
from evaluators.judge.candidate.side import Answer, NoAnswerError
from evaluators.judge.data.gpu_arena import GpuArea, tensors_in
from evaluators.judge.data.memory import SharedArea
from evaluators.judge.protocol import Baseline
from evaluators.judge.reference.baseline import ATTACH, ATTACHED_FDS, KEEP, LAYOUT_BYTES, BaselineError, fork_worker
from evaluators.judge.reference.problem import Problem, Tensors, as_form, load_model, run_model, share_parameters
from evaluators.runners.base import CALL, EMPTY, FRAME, MAGIC
from evaluators.runners.cuda import Harness
from messages.calls import CallForm
from messages.tasks import TaskSpec, TensorSpec, Workload

DEVICE = "cuda:0"
"""The one GPU that a judge sees."""
_CALL_S = 300.0
_WARM_UPS = 10


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    specs: tuple[TensorSpec, ...]
    trains: bool
    call: CallForm | None
    """Form around the tensors of role `input`; None: they are the arguments."""
    inputs_bytes: int
    results_bytes: int


class GpuBaselineSide:
    """The judge's handle of a baseline worker."""

    def __init__(
        self, task: TaskSpec, kind: Baseline, workload: Workload | None = None, *, close_fds: Sequence[int]
    ) -> None:
        """Fork. Must happen before this process touches the GPU.

        Args:
            task: the problem, which the worker loads for itself.
            kind: what is made of its model; empty: nothing, it runs as it is.
            workload: the one that it computes on; None: the task's first, if it names any.
            close_fds: descriptors of the judge that the worker must not hold open.
        """
        self.kind: Baseline = kind
        self.pid, self._control, self._line = fork_worker(
            lambda end, nonce: _serve(end, task, workload, kind, nonce), close_fds
        )
        self._results: GpuArea | None = None

    def attach(self, inputs: SharedArea, problem: Problem) -> None:
        """Have it compute on shared memory, and warm it up: `torch.compile` takes its time here."""
        results = GpuArea("results", problem.output_specs, guarded=False)
        layout = _Layout(
            specs=problem.tensors,
            trains=problem.trains,
            call=problem.call,
            inputs_bytes=inputs.size_bytes,
            results_bytes=results.size_bytes,
        )
        socket.send_fds(self._control, [msgspec.msgpack.encode(layout)], [inputs.fd, results.fd])
        self._results = results
        self.ask(ATTACH)
        for _ in range(_WARM_UPS):
            self.call()

    def call(self) -> Answer:
        """Run the reference once on what lies in the inputs area."""
        return self.ask(CALL)

    def empty(self) -> Answer:
        """Do all that a call does, but for the reference."""
        return self.ask(EMPTY)

    def keep(self) -> Tensors:
        """Return the outputs of the last call; valid until the next."""
        self.ask(KEEP)
        return () if self._results is None else self._results.tensors

    def ask(self, operation: int) -> Answer:
        """Let it run until it answers."""
        name = self.kind or "reference"
        try:
            answer = self._line.exchange(operation, limit_s=_CALL_S)
        except NoAnswerError as silence:
            raise BaselineError(f"the worker of the {name} {silence.kind}") from silence
        if answer.status != 0:
            raise BaselineError(f"the {name} failed in its worker (status {answer.status})")
        return answer


class _Worker:
    def __init__(self, control: socket.socket, task: TaskSpec, workload: Workload | None, kind: Baseline) -> None:
        body, fds, _, _ = socket.recv_fds(control, LAYOUT_BYTES, ATTACHED_FDS)
        layout = msgspec.msgpack.decode(body, type=_Layout)
        self.harness = Harness()
        sizes = {"inputs_bytes": layout.inputs_bytes, "outputs_bytes": layout.results_bytes}
        bases = self.harness.map_areas(sizes, *fds)
        inputs = [spec for spec in layout.specs if spec.role != "output"]
        outputs = [spec for spec in layout.specs if spec.role == "output"]
        given = tensors_in(view_memory(bases["inputs"], layout.inputs_bytes), inputs)
        self._results = tensors_in(view_memory(bases["outputs"], layout.results_bytes), outputs)
        count = sum(spec.role == "input" for spec in layout.specs)
        self._inputs, state = given[:count], given[count:]
        self._outputs: Tensors = ()
        model = load_model(task, DEVICE, workload).train(layout.trains)
        share_parameters(model, state)
        if kind == "torch.compile":
            model.compile()
        self._model = model
        self._form = as_form(layout.call.arguments) if layout.call else None

    def call(self) -> int:
        # Freed first: in a program of its own the previous result would be gone as well.
        self._outputs = ()
        self._outputs = run_model(self._model, self._inputs, DEVICE, self._form)
        return 0

    def keep(self) -> int:
        for place, output in zip(self._results, self._outputs, strict=True):
            place.copy_(output)
        torch.cuda.synchronize()
        return 0


def _serve(control: socket.socket, task: TaskSpec, workload: Workload | None, kind: Baseline, nonce: int) -> int:
    """Answer frames until the judge is gone. What the problem raises ends the worker, and stands in the judge's log."""
    worker = _Worker(control, task, workload, kind)
    stream = torch.cuda.ExternalStream(worker.harness.stream)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        while True:
            frame = control.recv(FRAME.size)
            if len(frame) != FRAME.size:
                return 0
            _, operation, sequence, _, _, _ = FRAME.unpack(frame)
            status = span_ns = 0
            if operation == CALL:
                status, span_ns = worker.harness.span(worker.call)
            elif operation == EMPTY:
                status, span_ns = worker.harness.span(lambda: 0)
            elif operation == KEEP:
                status = worker.keep()
            control.send(FRAME.pack(MAGIC, operation, sequence, nonce, status, span_ns))
