"""Builds a Triton candidate for a GPU that need not be here: a script started by `support.py`.

Or a module of a warm process (`evaluators/process/warm.py`): `prepare` once, `main` in a process forked for each
candidate. Its argument is a JSON object (`BuildJob` in `support.py`). First the sources are read (`syntax.py`); then,
if the task's tensors are known, a child process compiles every kernel that a call would launch (`recording.py`). Prints
one line per kernel, or the error and its place, and ends with 0 or 1. The kernels' code stays in `KERNELS`, where
Triton finds it again when the same program runs with the same versions.

A program may need a real GPU before it launches anything (it reads a tensor's contents, say). That is no error here:
the output says what was compiled until then, and that the rest was not.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping

from evaluators.languages import syntax
from evaluators.runners.kernels import KERNELS

_REPORT_BYTES = 1 << 20
_UNCERTAIN = frozenset({"RuntimeError", "NotImplementedError", "AcceleratorError"})
"""Raised by torch where there is no GPU or a tensor has no contents; the program's own mistakes are mostly others."""
_WORDS_OF_ABSENCE = ("cuda", "nvidia", "gpu", "meta tensor", "simplenamespace")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def main(argument: str = "") -> int:
    """Build the candidate in the working directory."""
    job = json.loads(argument or sys.argv[1])
    if syntax.check_kernels(job["entry_point"], job["programs"]) != 0:
        return 1
    if not job["tensors"]:
        return 0
    prepare()
    os.environ["TRITON_CACHE_DIR"] = os.path.join(os.getcwd(), KERNELS)  # noqa: PTH109, PTH118 - the start-up
    from evaluators.languages.triton import recording  # noqa: PLC0415 - imports torch, which costs a second

    # Not a pipe: the program may leave a process behind that holds one open, and this one would wait for its end.
    report = os.memfd_create("report")
    pid = os.fork()
    if pid == 0:
        try:
            _compile(job, report, recording.record)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    written = os.pread(report, _REPORT_BYTES, 0)
    os.close(report)
    return _tell(written, os.waitstatus_to_exitcode(status))


def prepare() -> None:
    """Import what building needs: seconds, which a process that builds many candidates spends once."""
    os.environ.update(
        TRITON_DUMP_PTXAS_LOG="1",
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
        # Nothing here may touch a GPU, on which others may be measuring.
        CUDA_VISIBLE_DEVICES="",
    )
    import triton.language  # noqa: F401, PLC0415 - as above
    from triton.backends import backends  # noqa: F401, PLC0415

    from evaluators.languages.triton import recording  # noqa: F401, PLC0415
    from evaluators.runners.warm import be_ready_to_launch  # noqa: PLC0415

    be_ready_to_launch()


def _compile(job: Mapping[str, object], writing: int, record: object) -> None:
    """Compile, and write the report: to the end of the process."""
    be_compiler(int(str(job["memory_bytes"])))
    folder = os.getcwd()  # noqa: PTH109 - as above
    told = {**job, "folder": folder, "program": os.path.join(folder, str(job["program"]))}  # noqa: PTH118 - as above
    report = record(told) if callable(record) else {}
    os.write(writing, json.dumps(report).encode()[:_REPORT_BYTES])
    os._exit(0)


def be_compiler(memory_bytes: int) -> None:
    """Print nothing from now on, and bind this process to some address space besides what it has."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (1, 2):
        os.dup2(null, stream)
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - as above
        size_bytes = int(statm.read().split()[0]) * _PAGE_BYTES
    bound = size_bytes + memory_bytes
    with contextlib.suppress(ValueError):  # bound already, and lower
        resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def _tell(written: bytes, code: int) -> int:
    """Print what came of the compilation. Returns the exit code."""
    if code == -signal.SIGKILL:  # by the system, for want of memory: no fault of the candidate's
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        report = json.loads(written)
        kernels, error = report["kernels"], str(report["error"])
    except (ValueError, KeyError, TypeError):
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return _refuse(f"the program ended the compiling process, or crashed Triton's compiler ({how})")
    wrong = next((f"kernel {kernel['name']}:\n{kernel['error']}" for kernel in kernels if kernel["error"]), "")
    if not wrong and error and not _may_be_absence(error):
        wrong = error
    if not wrong and not kernels and not error:
        wrong = "no kernel was launched"
    if wrong:
        return _refuse(wrong)
    sys.stdout.write("".join(f"{say_kernel(kernel)}\n" for kernel in kernels))
    if error:
        last = error.strip().splitlines()[-1]
        sys.stdout.write(f"not compiled further, for want of a real GPU: {last}\n")
    return 0


def say_kernel(kernel: Mapping[str, object]) -> str:
    """Return what a kernel needs, in one line."""
    return (
        f"kernel {kernel['name']}: {kernel['registers']} registers, {kernel['spilled_bytes']} bytes spilled, "
        f"{kernel['shared_bytes']} bytes of shared memory, {kernel['warps']} warps, {kernel['stages']} stages"
    )


def _may_be_absence(error: str) -> bool:
    last = error.strip().splitlines()[-1]
    is_uncertain = last.partition(":")[0] in _UNCERTAIN
    return is_uncertain or any(word in last.lower() for word in _WORDS_OF_ABSENCE)


def _refuse(text: str) -> int:
    sys.stderr.write(text + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
