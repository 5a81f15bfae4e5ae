"""The baseline worker: runs the eager reference in a process that never saw a candidate.

It is forked from the judge before any OpenMP thread exists there (a forked child of a process with OpenMP threads hangs
in its first parallel region), at torch's default number of threads. It computes on the very pages of shared memory
that the candidate is given. Its frames are the runner's; `KEEP` copies the last outputs to the results area.
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
from evaluators.judge.data.arena import Area, Placed, lay_out, view_tensor
from evaluators.judge.data.memory import SharedArea
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
from evaluators.process.guard import fork_child, kill
from evaluators.runners.base import CALL, EMPTY, FRAME, MAGIC, arranged, keep_freed_memory, map_shared
from messages.calls import CallForm
from messages.tasks import TaskSpec, TensorSpec, Workload

ATTACH, KEEP = 4, 5
ATTACHED_FDS = 2
LAYOUT_BYTES = 1 << 17
_CALL_S = 300.0
_EMPTY_CALLS = 15
_WARM_UPS, _CALM_CALLS, _WARM_UP_S = 3, 16, 4.0
FEW_PAGES = 16
"""Page faults that a call may have without being slower for it."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Message to a worker once the judge has loaded the task."""

    specs: tuple[TensorSpec, ...]
    inputs: tuple[Placed, ...]
    """Where the tensors that are no outputs lie."""
    trains: bool
    call: CallForm | None
    """Form around the tensors of role `input`; None: they are the arguments."""


class BaselineError(Exception):
    """The baseline worker died or failed: the judge is broken, not the candidate."""


class BaselineSide:
    """The judge's handle of its baseline worker."""

    def __init__(
        self, task: TaskSpec, workload: Workload | None = None, *, threads: int, close_fds: Sequence[int]
    ) -> None:
        """Fork. Must happen before torch has used OpenMP in this process.

        Args:
            task: the problem, which the worker loads for itself.
            workload: the one that it computes on; None: the task's first, if it names any.
            threads: on how many it computes.
            close_fds: descriptors of the judge that the worker must not hold open.
        """
        self.pid, self._control, self._line = fork_worker(
            lambda end, nonce: _serve(end, task, workload, nonce, threads), close_fds
        )
        self._inputs: SharedArea | None = None
        self._results: Area | None = None
        self.empty_ns = 0

    def attach(self, inputs: SharedArea, problem: Problem) -> None:
        """Have it compute on shared memory that holds the tensors of its problem, and warm it up."""
        results = Area("results", problem.output_specs, guarded=False)
        self._inputs = inputs
        given = tuple(inputs.placed)
        layout = Layout(specs=problem.tensors, inputs=given, trains=problem.trains, call=problem.call)
        socket.send_fds(self._control, [msgspec.msgpack.encode(layout)], [inputs.fd, results.fd])
        self._results = results
        self.ask(ATTACH, limit_s=_CALL_S)
        self.empty_ns = min(self.ask(EMPTY, limit_s=_CALL_S).elapsed_ns for _ in range(_EMPTY_CALLS))
        self._warm_up()

    def _warm_up(self) -> None:
        """Call it until its heap has grown to what calls need: until several in a row were given no new memory.

        An aligned block that was freed does not always fit the next request of the same size, so a heap that gives
        nothing back still grows for some ten calls, each of them several times as slow as the later ones.
        """
        calm, calls, deadline = 0, 0, time.monotonic() + _WARM_UP_S
        while calls < _WARM_UPS or (calm < _CALM_CALLS and time.monotonic() < deadline):
            before = self.page_faults()
            self.call(limit_s=_CALL_S)
            calm = calm + 1 if self.page_faults() - before <= FEW_PAGES else 0
            self.keep()
            calls += 1

    def call(self, *, limit_s: float) -> Answer:
        """Run the reference once on what lies in the inputs area."""
        return self.ask(CALL, limit_s=limit_s)

    def keep(self) -> Tensors:
        """Return the outputs of the last call; valid until the next."""
        self.keep_ns()
        return () if self._results is None else self._results.tensors

    def keep_ns(self) -> int:
        """Have it copy the outputs of the last call. Returns the time in ns, an empty call's included."""
        return self.ask(KEEP, limit_s=_CALL_S).elapsed_ns

    def page_faults(self) -> int:
        """Return how many pages the kernel has given it so far."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii")
        # The command's name stands in parentheses and may hold anything; minflt is the eighth field after it.
        return int(stat.rpartition(")")[2].split()[7])

    def has_huge_pages(self) -> bool:
        """Say whether the kernel gave it huge pages, which its malloc asks for."""
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text(encoding="ascii")
        return any(line.startswith("AnonHugePages:") and line.split()[1] != "0" for line in rollup.splitlines())

    def hurry(self, *, first: bool) -> None:
        """Put its calls before other processes of the host from now on, or no longer."""
        self._line.is_urgent = first

    def ask(self, operation: int, *, limit_s: float) -> Answer:
        """Let it run until it answers."""
        self._line.arrangement = 0 if self._inputs is None else self._inputs.arrangement
        try:
            answer = self._line.exchange(operation, limit_s=limit_s, is_timed=operation != ATTACH)
        except NoAnswerError as silence:
            raise BaselineError(f"the baseline worker {silence.kind}") from silence
        if answer.status != 0:
            raise BaselineError("the reference failed in the baseline worker")
        return answer

    def end(self) -> None:
        """Kill it."""
        kill(self.pid)
        os.waitpid(self.pid, 0)


def fork_worker(
    serve: Callable[[socket.socket, int], int], close_fds: Sequence[int]
) -> tuple[int, socket.socket, Line]:
    """Fork a side that runs the user's own code.

    Args:
        serve: what it does to its end, given its end of the socket and the nonce of the frames; returns an exit code.
        close_fds: descriptors of this process that it must not hold open.

    Returns:
        Its process id, this process's end of the socket, and the line over it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    nonce = int.from_bytes(os.urandom(8), "little")
    pid = fork_child(lambda: serve(theirs, nonce), close_fds=(*close_fds, ours.fileno()))
    theirs.close()
    return pid, ours, Line(ours, pid, nonce)


def _serve(control: socket.socket, task: TaskSpec, workload: Workload | None, nonce: int, threads: int) -> int:
    body, fds, _, _ = socket.recv_fds(control, LAYOUT_BYTES, ATTACHED_FDS)
    layout = msgspec.msgpack.decode(body, type=Layout)
    torch.set_num_threads(threads)
    inputs_fd, results_fd = fds
    keep_freed_memory()
    outputs = [spec for spec in layout.specs if spec.role == "output"]
    given = _attach(inputs_fd, layout.inputs, [spec for spec in layout.specs if spec.role != "output"])
    (results,) = _attach(results_fd, lay_out("results", outputs, 0)[0], outputs)
    count = sum(spec.role == "input" for spec in layout.specs)
    state = given[0][count:]
    model = load_model(task, workload=workload).train(layout.trains)
    share_parameters(model, state)
    form = as_form(layout.call.arguments) if layout.call else None

    def run(arrangement: int) -> Tensors:
        return run_model(model, given[arrangement % len(given)][:count], form=form)

    return _answer(control, nonce, Staged(run, stage_of(task, "cpu")), results)


def _answer(control: socket.socket, nonce: int, run: Callable[[int], Tensors], results: Tensors) -> int:
    outputs: Tensors = ()
    while True:
        frame = control.recv(FRAME.size)
        if len(frame) != FRAME.size:
            return 0
        _, operation, sequence, _, _, arrangement = FRAME.unpack(frame)
        status = 0
        if operation == CALL:
            # Freed first: in a program of its own the previous result would be gone as well.
            outputs = ()
            try:
                outputs = run(arrangement)
            except ProblemError:
                status = 1
        elif operation == KEEP:
            for place, output in zip(results, outputs, strict=True):
                place.copy_(output)
        control.send(FRAME.pack(MAGIC, operation, sequence, nonce, status, 0))


def _attach(fd: int, placed: Sequence[Placed], specs: Sequence[TensorSpec]) -> list[Tensors]:
    """Map an area that the judge made. Returns its tensors in each arrangement."""
    size_bytes = os.fstat(fd).st_size
    memory = (ctypes.c_char * size_bytes).from_address(map_shared(fd, size_bytes, writable=True))
    known = [msgspec.to_builtins(place) for place in placed]
    return [tuple(row) for row in arranged(known, lambda index, at: view_tensor(memory, specs[index], at))]
