"""Builds a module candidate that may hold Triton kernels, for a GPU that need not be here: see `ahead.py`.

A module of a warm process (`evaluators/process/warm.py`), or a script: `prepare` once, `main` in a process forked for
each candidate. Its argument is a JSON object (`AheadJob` in `ahead.py`). First extensions are built (`building.py`), or
the sources are read (`syntax.py`); then the module is called on tensors without data (`rehearsal.py`), and each Triton
kernel that it launches is compiled. Candidates are executed in child processes only.

Prints one line per kernel. A kernel that cannot be compiled here is no failure: one line says why, and the first call
on the GPU compiles it. An error in a kernel's source that every call runs into is a failure.
The kernels' code stays in `KERNELS`, where Triton finds it again when the same program runs with the same versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from evaluators.languages import syntax
from evaluators.languages.programs import headline
from evaluators.languages.python import building
from evaluators.languages.triton.building import be_compiler, say_kernel
from evaluators.runners.kernels import KERNELS

_GRACE_S = 2.0
"""More, for a candidate that waits for something itself."""
_REPORT_BYTES = 1 << 20
_NOT_AHEAD = "not compiled ahead"


def main(argument: str = "") -> int:
    """Build the candidate in the working directory."""
    job = json.loads(argument or sys.argv[-1])
    if job["inline"]:
        code = _code_of(_in_child(lambda: building.main(job["inline"])))
    else:
        code = syntax.check_module(job["entry_point"], job["programs"])
    if code != 0:
        return code
    if not job["calls"]:
        return _say_not_ahead(job["why_not"])
    prepare()
    os.environ["TRITON_CACHE_DIR"] = os.path.join(os.getcwd(), KERNELS)  # noqa: PTH109, PTH118 - the start-up
    deadline = time.monotonic() + job["limit_s"]
    told, ending = _called(job, deadline, waits=False)
    # Parts that are compiled by now are found the second time.
    if any("again" in entry for entry in told) and time.monotonic() < deadline:
        first = told
        told, ending = _called(job, deadline, waits=True)
        _tell_as_before(told, first)
    return _tell(told, ending)


def _tell_as_before(told: list[dict[str, object]], first: list[dict[str, object]]) -> None:
    """Complete the reports on kernels that were compiled before: the assembler printed nothing for them this time."""
    known = {_kind_of(entry): entry for entry in first if entry.get("registers") is not None}
    for entry in told:
        if "registers" in entry and entry["registers"] is None:
            entry.update(known.get(_kind_of(entry), {}) | {"number": entry["number"]})


def _kind_of(kernel: Mapping[str, object]) -> tuple[object, ...]:
    return tuple(kernel.get(name) for name in ("name", "shared_bytes", "size_bytes", "warps", "stages"))


def _called(job: Mapping[str, object], deadline: float, *, waits: bool) -> tuple[list[dict[str, object]], str]:
    """Call the module in a process of its own. Returns what that told, and how it ended, if not by itself."""
    # Not a pipe: the program may leave a process behind that holds one open, and this one would wait for its end.
    report = os.memfd_create("report")
    pid = _in_child(lambda: _rehearse(job, deadline, report, waits=waits))
    ending = _wait(pid, deadline + _GRACE_S)
    written = os.pread(report, _REPORT_BYTES, 0)
    os.close(report)
    return _entries_of(written), ending


def prepare() -> None:
    """Import what building needs: seconds, which a process that builds many candidates spends once."""
    # Nothing here may touch a GPU, on which others may be measuring.
    os.environ.update(TRITON_DUMP_PTXAS_LOG="1", OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    building.prepare()
    import torch  # noqa: PLC0415 - as above
    import triton.language  # noqa: F401, PLC0415
    from triton.backends import backends  # noqa: F401, PLC0415

    from evaluators.languages.python import rehearsal  # noqa: F401, PLC0415
    from evaluators.runners.warm import be_ready_to_launch  # noqa: PLC0415

    be_ready_to_launch()
    # Torch reads its table of shapes on first use.
    with torch.device("meta"):
        torch.nn.Linear(1, 1)(torch.empty(1, 1))


def _in_child(run: Callable[[], int]) -> int:
    """Run something in a forked process, which ends with what it returns. Returns its id."""
    _flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = run()
    finally:
        _flush()
        os._exit(code)


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()


def _code_of(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if code == -signal.SIGKILL:  # by the system, for want of memory: no fault of the candidate's
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stderr.write(f"importing the file ended its process (signal {-code})\n")
    return 1


def _rehearse(job: Mapping[str, object], deadline: float, report: int, *, waits: bool) -> NoReturn:
    """Call the module, and write lines of JSON to the report: to the end of the process."""
    os.setpgid(0, 0)
    be_compiler(int(str(job["memory_bytes"])))
    from evaluators.languages.python.rehearsal import rehearse  # noqa: PLC0415 - imports torch

    tempfile.tempdir = None  # where compilers may write was not known when this was asked for the first time

    def tell(told: Mapping[str, object]) -> None:
        os.write(report, json.dumps(told).encode() + b"\n")

    rehearse(job, deadline, tell, waits=waits)
    os._exit(0)


def _wait(pid: int, deadline: float) -> str:
    """Wait for the calls. Returns how they ended, if not by themselves."""
    ended = os.pidfd_open(pid)
    ready, _, _ = select.select([ended], [], [], max(0.0, deadline - time.monotonic()))
    os.close(ended)
    if not ready:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not ready:
        return "its first calls do not end without a GPU"
    if code == 0:
        return ""
    return f"without a GPU its call ends the process ({f'signal {-code}' if code < 0 else f'exit code {code}'})"


def _tell(told: list[dict[str, object]], ending: str) -> int:
    """Print what came of the calls. Returns the exit code."""
    for refused in (entry["refused"] for entry in told if "refused" in entry):
        sys.stderr.write(f"{refused}\n")
        return 1
    kernels = sorted((entry for entry in told if "name" in entry), key=lambda entry: int(str(entry["number"])))
    for line in dict.fromkeys(map(_say, kernels)):
        sys.stdout.write(f"{line}\n")
    errors = [ending, *(str(entry["error"]) for entry in told if "name" not in entry and "error" in entry)]
    why = next(filter(None, errors), "")
    return _say_not_ahead(why) if why else 0


def _entries_of(written: bytes) -> list[dict[str, object]]:
    """Return the entries, in lines of JSON; the last line may be cut."""
    found = []
    for line in written.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def _say(kernel: Mapping[str, object]) -> str:
    if kernel["error"]:
        return f"kernel {kernel['name']}: {headline(str(kernel['error']))}"
    return say_kernel(kernel)


def _say_not_ahead(why: str) -> int:
    """Print one line. Returns an exit code: it is no failure."""
    sys.stdout.write(f"{_NOT_AHEAD}: {headline(why)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
