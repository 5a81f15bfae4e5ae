"""Calls candidates on a GPU and times them there; `main` runs one that is a shared library. Stdlib only.

The argument of `main` is a JSON object (`RunnerSpec` in `evaluators/judge/candidate/runner.py`). The calling contracts
of shared libraries are those of `evaluators/languages/cuda/contract.py`. A harness's times are claims of the
candidate's process; the judge holds them against its own clock.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
from collections.abc import Callable, Mapping

from evaluators.hardware.vendors.nvidia.activities import Recorder, RecorderError
from evaluators.hardware.vendors.nvidia.driver import Context, DriverError, SpanClock, attach
from evaluators.process.sandbox.confine import Confined, confine, seal
from evaluators.process.sandbox.profiles import run_cuda
from evaluators.runners.base import BURST, PROFILE, PROFILED, RECORD_BYTES, SEAL, bind_to_judge, serve
from evaluators.runners.native import CUDA, arguments_of, load

_BURST_CALLS, _BURST_NS = 100, 10**10
_BURST_ERROR = 0.001


def _is_known(spans: list[int]) -> bool:
    count = len(spans)
    if count < 3:
        return False
    mean = sum(spans) / count
    variance = sum((span - mean) ** 2 for span in spans) / (count - 1)
    return math.sqrt(variance / count) < _BURST_ERROR * mean


def _unrecorded(why: str) -> int:
    """Say why there is no record. Returns a status."""
    os.write(2, f"\n{why}\n".encode())
    return -1


class Sealing:
    """Takes system calls away in two steps.

    A candidate starts compilers in its first call on each workload. The judge says when that ends, and checks that it
    was done: by then this process is the candidate's (`judge/candidate/candidate.py`).
    """

    def __init__(self, confined: Confined) -> None:
        self._confined = confined
        seal(confined, may_start_compilers=True)

    def complete(self) -> int:
        """Take away the means to start processes. Returns 0."""
        seal(self._confined)
        return 0


class Harness:
    """Calls a candidate on a stream, with an event before and after; then waits for everything."""

    def __init__(self, cupti: str = "") -> None:
        """Take the GPU; `cupti` is the library that records calls (empty: none will be recorded)."""
        self._recorder: Recorder | None = None
        self._no_recorder = "no records were asked for"
        if cupti:
            try:
                self._recorder = Recorder(cupti)
            except RecorderError as error:
                self._no_recorder = str(error)
        self.context = Context()
        self.context.keep_freed_memory()
        self.stream = self.context.make_stream()
        self._clock = SpanClock(self.context, self.stream)
        self.ran: Callable[[], str] = str
        """Lists the kernels that ran, for the log of a failure."""
        self.after: Callable[[], int] | None = None
        """Done behind the second event: checks and hands over a call's outputs, and returns a status."""

    def span(self, call: Callable[[], int]) -> tuple[int, int]:
        """Make a call. Returns its status, the driver's negated error code if the GPU failed, and its span in ns."""
        try:
            return self._timed(call)
        except DriverError as error:
            os.write(2, f"{self.ran()}CUDA error: {error}\n".encode())
            return -error.code, 0

    def _timed(self, call: Callable[[], int]) -> tuple[int, int]:
        self._clock.begin()
        status = call()
        self._clock.end()
        if self.after is not None and not status:
            status = self.after()
        self.context.synchronize()
        return status, self._clock.elapsed_ns()

    def burst(self, call: Callable[[], int]) -> int:
        """Make calls in a row, each on an idle GPU, as competitions do. Returns their mean span in ns, or -status.

        They end when the mean's standard error is below 0.1 %, at 100, or after 10 s (`eval.py` of reference-kernels
        f83cb92).
        """
        spans: list[int] = []
        try:
            while len(spans) < _BURST_CALLS and sum(spans) < _BURST_NS and not _is_known(spans):
                self.context.synchronize()
                self._clock.begin()
                status = call()
                self._clock.end()
                self.context.synchronize()
                if status:
                    return -abs(status)
                spans.append(self._clock.elapsed_ns())
        except DriverError as error:
            return -error.code
        return round(sum(spans) / len(spans))

    @property
    def ways(self) -> Mapping[int, Callable[[Callable[[], int]], int]]:
        """Further ways to make a call, by operation."""
        return {BURST: self.burst, PROFILE: self.profile}

    def profile(self, call: Callable[[], int]) -> int:
        """Make a call and write the GPU's record of it to the log, or why there is none. Returns 0 if there is one."""
        if self._recorder is None:
            return _unrecorded(self._no_recorder)
        try:
            self._recorder.begin()
            status = call()
            self.context.synchronize()
            found = self._recorder.end()
        except (DriverError, RecorderError) as error:
            return _unrecorded(str(error))
        if status:
            return _unrecorded(f"the recorded call failed with status {status}")
        record = b"\n" + PROFILED + json.dumps(found).encode() + b"\n"
        if len(record) > RECORD_BYTES:
            return _unrecorded(f"a call has the GPU do {len(found)} things, too many to record")
        os.write(2, record)
        return 0

    def map_areas(self, spec: dict[str, int], inputs_fd: int, outputs_fd: int) -> dict[str, int]:
        """Map the judge's memory. Returns the addresses of `inputs` and `outputs`."""
        return {
            "inputs": attach(self.context, inputs_fd, spec["inputs_bytes"]),
            "outputs": attach(self.context, outputs_fd, spec["outputs_bytes"]),
        }


def main() -> int:
    """Serve one judge until it goes away or kills this process."""
    spec = json.loads(sys.argv[-1])
    bind_to_judge(spec["judge_pid"])
    reads = (spec["product"], spec["tvm_ffi"], os.path.dirname(spec["cupti"]))  # noqa: PTH120 - starts
    confined = confine(run_cuda(spec["folder"], reads=reads, file_bytes=spec["file_bytes"]))
    harness = Harness(spec["cupti"])
    bases = harness.map_areas(spec, spec["inputs_fd"], spec["outputs_fd"])
    arguments = [
        arguments_of(tensors, bases, call, device=CUDA, stream=harness.stream)
        for tensors, call in zip(spec["workloads"], spec["calls"], strict=True)
    ]
    gc.disable()
    sealing = Sealing(confined)
    serve(
        spec["control_fd"],
        spec["nonce"],
        lambda _: load(spec, arguments),
        harness.span,
        isolation=confined.claim,
        ways=harness.ways,
        others={SEAL: sealing.complete},
    )
    return 0
