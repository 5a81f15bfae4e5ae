"""The warm process that runners are forked from: it has imported torch and Triton, and never loads a candidate.

It must have one thread and no GPU context: neither survives a fork. Each order is a JSON object (`RunnerSpec` in
`evaluators/judge/candidate/runner.py`) with four descriptors: control socket, inputs, outputs, log. The runner is
forked twice, so that it becomes a child of the judge, which is a subreaper; the answer is its process id.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import io
import json
import math
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import torch
import triton.language  # noqa: F401 - what candidates import, they find imported
from triton.runtime.cache import triton_key

from evaluators.process.sandbox.confine import confine
from evaluators.process.sandbox.profiles import run_interpreted
from evaluators.runners.base import (
    LOADED,
    NO_ENTRY_POINT,
    NOT_LOADED,
    Called,
    Span,
    arranged,
    bind_to_judge,
    call_untimed,
    map_areas,
    print_by_lines,
    serve,
)
from evaluators.runners.denial import Denial, Rules
from evaluators.runners.inline import offer_built
from evaluators.runners.program import NoEntryPointError, load_entry_point, tell_raised
from evaluators.runners.structure import with_numbers

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


_IMPORTED = ("triton.compiler.code_generator", "triton.experimental.gluon", "triton.tools.tensor_descriptor")


def be_ready_to_launch() -> None:
    """Compute Triton's own hash, part of every kernel's key, and import its late imports: a seventh of a second."""
    triton_key()
    for name in _IMPORTED:
        with contextlib.suppress(ModuleNotFoundError):  # versions differ in their modules
            importlib.import_module(name)


READY = b"ready"
ORDER_BYTES = 1 << 18
ORDER_FDS = 4
_ADOPTION_S = 5.0
_LAST_WORDS_BYTES = 16 << 10
"""Of the log, kept for what the candidate raises."""

DTYPES = {
    (2, 32): torch.float32,
    (2, 64): torch.float64,
    (2, 16): torch.float16,
    (4, 16): torch.bfloat16,
    (0, 64): torch.int64,
    (0, 32): torch.int32,
    (0, 16): torch.int16,
    (0, 8): torch.int8,
    (1, 8): torch.uint8,
    (6, 8): torch.bool,
    (10, 8): torch.float8_e4m3fn,
    (12, 8): torch.float8_e5m2,
}
"""By DLPack's type code and bits."""
Workloads: TypeAlias = Sequence[Sequence[Sequence[torch.Tensor]]]
"""Tensors of each workload in each arrangement: inputs, then outputs."""


class Order:
    """An order to a forked runner."""

    def __init__(self, spec: dict[str, Any], fds: list[int]) -> None:
        self.spec = spec
        self.denial = Denial()
        self.control, self.inputs_fd, self.outputs_fd, self._log = fds
        self.isolation = 0
        """The active layers; see `evaluators/process/sandbox/claims.py`."""

    def begin(self) -> None:
        """Become a child of the judge, print to the log, and enter the runner's folder."""
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        deadline = time.monotonic() + _ADOPTION_S
        while os.getppid() != self.spec["judge_pid"] and time.monotonic() < deadline:
            time.sleep(0.0005)
        bind_to_judge(self.spec["judge_pid"])
        for stream in (1, 2):
            os.dup2(self._log, stream)
        os.close(self._log)
        log = io.BufferedWriter(_Log(self.spec["file_bytes"] - _LAST_WORDS_BYTES))
        sys.stdout = sys.stderr = io.TextIOWrapper(log, encoding="utf-8", errors="replace", line_buffering=True)
        print_by_lines()
        os.chdir(str(self.spec["folder"]))

    def serve(
        self,
        load: Callable[[int], tuple[int, Called]],
        span: Span = call_untimed,
        *,
        others: Mapping[int, Callable[[], int]] = {},
        ways: Mapping[int, Callable[[Callable[[], int]], int]] = {},
    ) -> NoReturn:
        """Answer frames until the judge is gone, then end; see `evaluators.runners.base.serve`."""
        serve(self.control, self.spec["nonce"], load, span, isolation=self.isolation, others=others, ways=ways)
        os._exit(0)

    def tensors(self, view: Callable[[Mapping[str, Any], torch.dtype, int], torch.Tensor]) -> Workloads:
        """Return the tensors of each workload, dense; `view` makes one of its `Placed`, dtype and offset."""

        def arranged_tensors(placed: Sequence[Mapping[str, Any]]) -> list[list[torch.Tensor]]:
            dtypes = [DTYPES[tensor["code"], tensor["bits"]] for tensor in placed]
            return arranged(placed, lambda index, offset: view(placed[index], dtypes[index], offset))

        return [arranged_tensors(placed) for placed in self.spec["workloads"]]


def begin_on_cpu(order: Order) -> Workloads:
    """Enter the CPU sandbox. Returns the tensors in the mapped memory."""
    order.begin()
    spec = order.spec
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    bases = map_areas({**spec, "inputs_fd": order.inputs_fd, "outputs_fd": order.outputs_fd})
    profile = run_interpreted(
        str(spec["folder"]),
        reads=(os.path.dirname(str(spec["product"])),),  # noqa: PTH120 - a path as the judge gave it
        memory_bytes=pages * os.sysconf("SC_PAGE_SIZE") + spec["memory_bytes"],
        file_bytes=spec["file_bytes"],
        keeps_cores=bool(spec["terms"]["keeps_cores"]),
    )
    order.isolation = confine(profile).claim

    def view(placed: Mapping[str, Any], dtype: torch.dtype, offset: int) -> torch.Tensor:
        size_bytes = math.prod(placed["shape"]) * dtype.itemsize
        memory = (ctypes.c_char * size_bytes).from_address(bases[placed["area"]] + offset)
        return torch.frombuffer(memory, dtype=dtype).view(placed["shape"])

    return order.tensors(view)


def serve_function_on_cpu(order: Order) -> None:
    """Run one Triton program under the interpreter, to the end of the process."""
    workloads = begin_on_cpu(order)
    rules = Rules(order.spec["terms"], order.denial)
    order.serve(lambda _: load_function(order.spec, workloads, rules))


def fork_runners(control_fd: int, judge_pid: int, serve_candidate: Callable[[Order], None]) -> int:
    """Fork a runner per order until the judge is gone."""
    control = socket.socket(fileno=control_fd)
    bind_to_judge(judge_pid)
    torch.set_num_threads(1)
    # Garbage collection would write to pages that children share.
    gc.collect()
    gc.freeze()
    control.send(READY)
    denial = Denial()
    while True:
        text, fds, _, _ = socket.recv_fds(control, ORDER_BYTES, ORDER_FDS)
        if not text:
            return 0
        order = Order(json.loads(text), fds)
        order.denial = denial = _denial_of(order, denial)
        control.send(str(_start(control, order, serve_candidate)).encode())
        for fd in fds:
            os.close(fd)


def _denial_of(order: Order, last: Denial) -> Denial:
    """Return the last order's denial if it fits, since replacing the kernels takes a second."""
    denied = tuple(order.spec["terms"]["denied"])
    if denied == last.denied:
        return last
    last.undo()
    return Denial(denied)


def _start(control: socket.socket, order: Order, serve_candidate: Callable[[Order], None]) -> int:
    """Fork a runner with the judge as its parent. Returns its process id."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                os.close(reading)
                os.close(writing)
                serve_candidate(order)
            except BaseException:  # noqa: BLE001 - the runner ends here, and says why in its log
                tell(traceback.format_exc())
            finally:
                os._exit(1)
        with contextlib.suppress(OSError):  # it may have done so itself, and ended
            os.setpgid(pid, pid)
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)
    pid = int(os.read(reading, 32))
    os.close(reading)
    return pid


def numbers_among(form: Mapping[str, Any] | None, tensors: Sequence[torch.Tensor]) -> Sequence[object]:
    """Return the tensors, with the numbers of a `CallForm` inserted at their places."""
    return tensors if form is None else with_numbers(form["arguments"], tensors)


def load_function(
    spec: Mapping[str, Any],
    workloads: Workloads,
    rules: Rules,
    given: Callable[[Mapping[str, Any] | None, Sequence[torch.Tensor]], Sequence[object]] = numbers_among,
) -> tuple[int, Called]:
    """Import a candidate with an entry point that writes to given outputs. Returns a status and its calls.

    `given` makes its arguments from a `CallForm` and the tensors.
    """
    forms = spec["calls"]
    program = str(spec["product"])
    folder = os.path.dirname(program)  # noqa: PTH120 - it is compared with file names of frames
    offer_built(folder)
    try:
        function = load_entry_point(program, str(spec["entry_point"]), len(given(forms[0], workloads[0][0])))
    except NoEntryPointError as error:
        tell(str(error))
        return rules.of_load(NO_ENTRY_POINT), {}
    except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
        tell(tell_raised(error, folder))
        return rules.of_load(NOT_LOADED), {}

    def call(form: Mapping[str, Any] | None, tensors: Sequence[torch.Tensor]) -> int:
        try:
            function(*given(form, tensors))
        except BaseException as error:  # noqa: BLE001 - the candidate may raise whatever it likes
            tell(tell_raised(error, folder))
            return 1
        return 0

    calls = {
        number: [rules.of_call(partial(call, form, tensors)) for tensors in arrangements]
        for number, (form, arrangements) in enumerate(zip(forms, workloads, strict=True))
    }
    return rules.of_load(LOADED), calls


class _Log(io.RawIOBase):
    """The candidate's output, bounded: the rest is dropped without an error."""

    def __init__(self, left: int) -> None:
        self._left = left

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        told = bytes(data)
        with contextlib.suppress(OSError):
            os.write(1, told[: max(0, self._left)])
        self._left -= len(told)
        return len(told)


def tell(text: str) -> None:
    """Write to the log, after the candidate's output."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"\n{text}\n".encode(errors="replace"))
