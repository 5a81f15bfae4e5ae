"""A crash on a GPU, explained by NVIDIA's compute-sanitizer: kernel, source line, access.

The candidate is called once more on the data on which it crashed, in a fresh process under compute-sanitizer
(`evaluators/runners/sanitized.py`), within `LIMIT_S`. This is advice only: the verdict stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch

from evaluators.build.folders import remove_tree
from evaluators.judge.candidate.runner import ROOT, RunnerSpec, runner_environment
from evaluators.judge.data.memory import Buffers
from evaluators.languages.base import RunnerKind
from evaluators.process.printed import printable
from evaluators.runners.sanitized import DATA, LOG, SAID, SPEC
from messages.verdicts import Crashed

LIMIT_S = 60.0
_MOST_DATA_BYTES = 4 << 30
_MOST_FINDINGS, _MOST_LOG_BYTES, _MOST_CHARACTERS = 3, 64 << 10, 300
_GPU_CRASHES = re.compile(
    r"illegal ?(memory ?access|address|instruction)|misaligned ?address|launch ?fail|invalid ?address ?space"
    r"|device ?(side ?)?assert|hardware ?stack"
)
_HEADER = re.compile(r"=+ ((?:Invalid|Misaligned|Hardware|Warp|Illegal|Barrier|Lane|Stack|Device)\b.*)")
_AT = re.compile(
    r"=+ +at (?:0x[0-9a-f]+ in )?(?:(?P<file>[^:]+):(?P<line>\d+):)?(?P<kernel>.+?)(?:\+0x[0-9a-f]+)?"
    r"(?: in (?P<file2>\S+?):(?P<line2>\d+))?$"
)
_BY = re.compile(r"=+ +by thread (\(\d+,\d+,\d+\)) in block (\(\d+,\d+,\d+\))")
_WHY = re.compile(r"=+ +(?:Access|Address) (?:at |to )?0x[0-9a-f]+ (is (?:out of bounds|misaligned)[^,]*)")


def find_sanitizer() -> str:
    """Return the path of compute-sanitizer; empty: it is not installed."""
    folders = [os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"]
    if home := os.environ.get("CUDA_HOME"):
        folders.insert(1, f"{home}/bin")
    return shutil.which("compute-sanitizer", path=os.pathsep.join(folders)) or ""


def is_gpu_crash(crashed: Crashed) -> bool:
    """Return True if a candidate's kernel crashed on the GPU."""
    said = f"{crashed.reason}\n{crashed.log}".lower().replace("_", " ").replace("-", " ")
    return _GPU_CRASHES.search(said) is not None


def findings_in(log: str) -> tuple[str, ...]:
    """Return memcheck's findings, one line for each kind and place, at most three."""
    found: dict[str, str] = {}
    what = where = ""
    for line in map(str.rstrip, log.splitlines()):
        if header := _HEADER.match(line):
            what, where = header[1], ""
        elif what and (at := _AT.match(line)) and not where:
            file, number = at["file"] or at["file2"], at["line"] or at["line2"]
            where = f"{what} at {at['kernel']}" + (f", {Path(file).name}:{number}" if file else "")
            found.setdefault(where, where)
        elif where and (by := _BY.match(line)) and found[where] == where:
            found[where] += f", thread {by[1]} of block {by[2]}"
        elif where and (why := _WHY.match(line)) and " is " not in found[where]:
            found[where] += f": the address {why[1]}"
    return tuple(printable(each)[:_MOST_CHARACTERS] for each in list(found.values())[:_MOST_FINDINGS])


class Second(NamedTuple):
    """The outcome of a second run."""

    findings: tuple[str, ...]
    remark: str
    """Duration, or the reason why there are no findings."""

    def told_in(self, crashed: Crashed) -> Crashed:
        """Return the verdict with the first finding in its reason and all of them in its log."""
        reason = "; ".join((crashed.reason, *self.findings[:1]))
        log = "\n".join((f"{self.remark}:", *self.findings) if self.findings else (self.remark,))
        return msgspec.structs.replace(crashed, reason=reason, log=f"{log}\n\n{crashed.log}".rstrip())


def sanitize(spec: RunnerSpec, kind: RunnerKind, number: int, buffers: Buffers, path: str) -> Second:
    """Call a crashed candidate once more under compute-sanitizer."""
    tensors = buffers.inputs.tensors
    if sum(each.nbytes for each in tensors) > _MOST_DATA_BYTES:
        return Second((), f"not run under compute-sanitizer: its inputs have more than {_MOST_DATA_BYTES >> 30} GiB")
    begun, folder = time.monotonic(), Path(tempfile.mkdtemp(prefix="sanitize-", dir=Path.cwd()))
    try:
        torch.save([each.cpu() for each in tensors], folder / DATA)
        chosen = msgspec.structs.replace(
            spec,
            folder=str(folder),
            workloads=(spec.workloads[number],),
            calls=spec.calls[number : number + 1],
            instances=spec.instances[number : number + 1],
        )
        (folder / SPEC).write_bytes(msgspec.json.encode(chosen))
        is_in_time = _run(folder, kind, path)
        said = printable(_read(folder / SAID)).strip().splitlines()
        found = findings_in(_read(folder / LOG))
        took = f"{time.monotonic() - begun:.0f} s" if is_in_time else f"stopped after {LIMIT_S:g} s"
        if found:
            return Second(found, f"a second run under compute-sanitizer ({took}) found")
        last = f"; it said last: {said[-1][:_MOST_CHARACTERS]}" if said else ""
        return Second((), f"a second run under compute-sanitizer ({took}) found nothing{last}")
    except OSError as error:
        return Second((), f"not run under compute-sanitizer: {error}")
    finally:
        remove_tree(folder)


def _run(folder: Path, kind: RunnerKind, path: str) -> bool:
    with (folder / SAID).open("wb") as said:
        process = subprocess.Popen(  # noqa: S603 - our own code, which confines itself and starts the tool
            [sys.executable, "-P", "-m", "evaluators.runners.sanitized", "confine", str(folder), kind, path],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=folder,
            env={
                **runner_environment(),
                "PYTHONPATH": ROOT,
                "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
                "OMP_NUM_THREADS": "1",
            },
            process_group=0,
        )
    try:
        process.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return True


def _read(path: Path) -> str:
    """Return the beginning of a log that a candidate may have written to, without following links."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MOST_LOG_BYTES).decode(errors="replace")
