"""Baseline workers: the eager reference in a process that never loads a candidate.

A worker is forked from the judge before any OpenMP thread exists there (a forked child of a process with OpenMP threads
hangs in its first parallel region), and before anything there uses a GPU. It computes on the same memory that
candidates get. Its frames are the runner's; `KEEP` copies the last outputs to the results area.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from evaluators.judge.candidate.side import Answer, Line, NoAnswerError
from evaluators.judge.data.arena import Area, Placed, SharedArea, lay_out, tensor_at
from evaluators.judge.reference.problem import (
    Problem,
    ProblemError,
    Staged,
    Tensors,
    as_form,
    load_model,
    run_model,
    share_parameters,
    stage_of,
)
from evaluators.process.guard import fork_child
from evaluators.runners.base import CALL, EMPTY, FRAME, MAGIC, arranged, keep_freed_memory, map_shared
from evaluators.runners.structure import Form
from messages.calls import CallForm
from messages.tasks import TaskSpec, TensorSpec, Workload

_ATTACH, KEEP = 4, 5
_LAYOUT_BYTES = 1 << 17
_CALL_S = 300.0
_EMPTY_CALLS = 15
_WARM_UPS, _CALM_CALLS, _WARM_UP_S = 3, 16, 4.0
FEW_PAGES = 16
"""Number of page faults that do not slow a call down."""


class BaselineError(Exception):
    """The baseline worker died or failed: the judge is broken, not the candidate."""


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Message to a worker once the judge has loaded the task."""

    specs: tuple[TensorSpec, ...]
    inputs: tuple[Placed, ...]
    """Places of all tensors but the outputs."""
    trains: bool
    call: CallForm | None
    inputs_bytes: int
    results_bytes: int


class BaselineWorker:
    """The judge's handle to a worker. Siblings: `BaselineSide` on a CPU, `GpuBaselineSide`."""

    def __init__(self, named: str, serve: Callable[[socket.socket, int], int], close_fds: Sequence[int]) -> None:
        """Fork; `serve` runs in the worker, with its end of the socket and the nonce of the frames."""
        self._named = named
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nonce = int.from_bytes(os.urandom(8), "little")
        self.pid = fork_child(lambda: serve(theirs, nonce), close_fds=(*close_fds, self._control.fileno()))
        theirs.close()
        self._line = Line(self._control, self.pid, nonce)
        self._areas: tuple[SharedArea, SharedArea] | None = None

    def _attach(self, inputs: SharedArea, results: SharedArea, problem: Problem) -> None:
        layout = _Layout(
            specs=problem.tensors,
            inputs=tuple(inputs.placed),
            trains=problem.trains,
            call=problem.call,
            inputs_bytes=inputs.size_bytes,
            results_bytes=results.size_bytes,
        )
        socket.send_fds(self._control, [msgspec.msgpack.encode(layout)], [inputs.fd, results.fd])
        self._areas = inputs, results
        self.ask(_ATTACH)

    def call(self, *, limit_s: float = _CALL_S) -> Answer:
        """Run the reference once on the contents of the inputs area."""
        return self.ask(CALL, limit_s=limit_s)

    def empty(self, *, limit_s: float = _CALL_S) -> Answer:
        """Make an empty call."""
        return self.ask(EMPTY, limit_s=limit_s)

    def keep(self) -> Tensors:
        """Return the outputs of the last call; valid until the next."""
        self.ask(KEEP)
        return () if self._areas is None else self._areas[1].tensors

    def ask(self, operation: int, *, limit_s: float = _CALL_S) -> Answer:
        """Let it run until it answers."""
        self._line.arrangement = 0 if self._areas is None else self._areas[0].arrangement
        try:
            answer = self._line.exchange(operation, limit_s=limit_s, is_timed=operation != _ATTACH)
        except NoAnswerError as silence:
            raise BaselineError(f"{self._named} {silence.kind}") from silence
        if answer.status != 0:
            raise BaselineError(self._failed(answer.status))
        return answer

    def _failed(self, status: int) -> str:
        raise NotImplementedError


class BaselineSide(BaselineWorker):
    """A worker on a CPU."""

    def __init__(
        self, task: TaskSpec, workload: Workload | None = None, *, threads: int, close_fds: Sequence[int]
    ) -> None:
        """Fork. Must happen before torch has used OpenMP in this process."""
        super().__init__(
            "the baseline worker", lambda end, nonce: _serve(end, task, workload, nonce, threads), close_fds
        )
        self.empty_ns = 0

    def attach(self, inputs: SharedArea, problem: Problem) -> None:
        """Let it compute on shared memory with the tensors of its problem, and warm it up."""
        self._attach(inputs, Area("results", problem.output_specs, guarded=False), problem)
        self.empty_ns = min(self.empty().elapsed_ns for _ in range(_EMPTY_CALLS))
        self._warm_up()

    def _warm_up(self) -> None:
        """Call it until its heap stops growing: until several calls in a row were given no new memory.

        An aligned block that was freed does not always fit the next request of the same size, so a heap that returns
        nothing still grows for some ten calls, each of them several times as slow as the later ones.
        """
        calm, calls, deadline = 0, 0, time.monotonic() + _WARM_UP_S
        while calls < _WARM_UPS or (calm < _CALM_CALLS and time.monotonic() < deadline):
            before = self.page_faults()
            self.call()
            calm = calm + 1 if self.page_faults() - before <= FEW_PAGES else 0
            self.keep()
            calls += 1

    def keep_ns(self) -> int:
        """Copy the outputs of the last call. Returns the time in ns, including an empty call's."""
        return self.ask(KEEP).elapsed_ns

    def page_faults(self) -> int:
        """Return the number of pages that the kernel has given it so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        # The command's name is in parentheses and may contain anything; minflt is the eighth field after it.
        return int(stat.rpartition(")")[2].split()[7])

    def has_huge_pages(self) -> bool:
        """Return True if the kernel gave it huge pages, which its malloc requests."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii")
        return any(line.startswith("AnonHugePages:") and line.split()[1] != "0" for line in rollup.splitlines())

    def hurry(self, *, first: bool) -> None:
        """Give its calls priority over other processes of the host, or stop doing so."""
        self._line.is_urgent = first

    def _failed(self, status: int) -> str:  # noqa: ARG002 - siblings look the same
        return "the reference failed in the baseline worker"


class Reference:
    """The reference's model in a worker, with the tensors of its problem."""

    def __init__(
        self, layout: _Layout, given: Sequence[Tensors], task: TaskSpec, workload: Workload | None, device: str
    ) -> None:
        """Load it; `given` are the inputs, then the state, in each arrangement."""
        count = sum(spec.role == "input" for spec in layout.specs)
        self.model = load_model(task, device, workload).train(layout.trains)
        share_parameters(self.model, given[0][count:])
        self._inputs = [tensors[:count] for tensors in given]
        self._form: Form | None = as_form(layout.call.arguments) if layout.call else None
        self._device = device

    def run(self, arrangement: int) -> Tensors:
        """Run it once."""
        return run_model(self.model, self._inputs[arrangement % len(self._inputs)], self._device, self._form)


def receive_layout(control: socket.socket) -> tuple[_Layout, int, int]:
    """Wait for the judge's layout, and the descriptors of inputs and results."""
    body, (inputs_fd, results_fd), _, _ = socket.recv_fds(control, _LAYOUT_BYTES, 2)
    return msgspec.msgpack.decode(body, type=_Layout), inputs_fd, results_fd


def answer_frames(control: socket.socket, nonce: int, act: Callable[[int, int], tuple[int, int]]) -> int:
    """Answer frames until the judge is gone; `act` returns status and span in ns of an operation."""
    while True:
        frame = control.recv(FRAME.size)
        if len(frame) != FRAME.size:
            return 0
        _, operation, sequence, _, _, arrangement = FRAME.unpack(frame)
        control.send(FRAME.pack(MAGIC, operation, sequence, nonce, *act(operation, arrangement)))


def copy_outputs(results: Tensors, outputs: Tensors) -> None:
    """Copy a call's outputs to the results area."""
    for place, output in zip(results, outputs, strict=True):
        place.copy_(output)


def _serve(control: socket.socket, task: TaskSpec, workload: Workload | None, nonce: int, threads: int) -> int:
    layout, inputs_fd, results_fd = receive_layout(control)
    torch.set_num_threads(threads)
    keep_freed_memory()
    specs = layout.specs
    given = _map(inputs_fd, layout.inputs, [spec for spec in specs if spec.role != "output"])
    result_specs = [spec for spec in specs if spec.role == "output"]
    (results,) = _map(results_fd, lay_out("results", result_specs)[0], result_specs)
    run = Staged(Reference(layout, given, task, workload, "cpu").run, stage_of(task, "cpu"))
    outputs: Tensors = ()

    def act(operation: int, arrangement: int) -> tuple[int, int]:
        nonlocal outputs
        if operation == CALL:
            # Freed first, as the previous result would be in a program of its own.
            outputs = ()
            try:
                outputs = run(arrangement)
            except ProblemError:
                return 1, 0
        elif operation == KEEP:
            copy_outputs(results, outputs)
        return 0, 0

    return answer_frames(control, nonce, act)


def _map(fd: int, placed: Sequence[Placed], specs: Sequence[TensorSpec]) -> list[Tensors]:
    """Map an area that the judge made. Returns its tensors in each arrangement."""
    size_bytes = os.fstat(fd).st_size
    memory = (ctypes.c_char * size_bytes).from_address(map_shared(fd, size_bytes, writable=True))
    area = torch.frombuffer(memory, dtype=torch.uint8)
    known = [msgspec.to_builtins(place) for place in placed]
    return [tuple(row) for row in arranged(known, lambda index, at: tensor_at(area, specs[index], at))]
