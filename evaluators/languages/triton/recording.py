"""Compiles the kernels that a Triton candidate launches, without a GPU. A process of its own: `python -m` of this.

Its argument is a JSON object (`Recording` in `ahead.py`). Triton's own launch path is used, with two of its parts
replaced: the driver, by one that names the wanted architecture, and the launch, which here ends with the compilation.
So argument types, constants and the specialisation of integers (equal to 1, divisible by 16) are what they would be on
such a GPU. Of a kernel with `triton.autotune`, the first configuration is compiled.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from evaluators.runners.autotune import take_first_configurations
from evaluators.runners.program import NoEntryPointError, load_entry_point, tell_raised

_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_WARP_THREADS = 32


class _AbsentDevice:
    """A driver for a GPU that is not here: says what to compile for, and launches nothing."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, _WARP_THREADS)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


class _Recorder:
    """Stands in for the launch of kernels, and remembers each that was compiled."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.kernels: list[dict[str, object]] = []
        self._seen: set[str] = set()

    def install(self) -> None:
        """Have every launch come here."""
        launch = JITFunction.run

        def record(kernel: JITFunction[object], *args: object, **options: object) -> None:
            options["warmup"] = True
            self._record(str(kernel.fn.__name__), lambda: launch(kernel, *args, **options))

        JITFunction.run = record

    def _record(self, name: str, compile_it: Callable[[], object]) -> None:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                compiled = compile_it()
        except Exception as error:  # noqa: BLE001 - the compiler raises many kinds, and each is the answer
            self._add(name, tell_raised(error, self._folder), {"name": name, "error": tell_raised(error, self._folder)})
            return
        metadata = compiled.metadata  # type: ignore[attr-defined]
        facts = {
            "name": name,
            "registers": _first_number(_USED, printed.getvalue()),
            "spilled_bytes": _first_number(_SPILLS, printed.getvalue()),
            "shared_bytes": metadata.shared,
            "warps": metadata.num_warps,
            "stages": metadata.num_stages,
        }
        self._add(name, metadata.hash, facts)

    def _add(self, name: str, identity: str, facts: dict[str, object]) -> None:
        """Keep what is new: a kernel may be launched many times for the same types."""
        if name + identity not in self._seen:
            self._seen.add(name + identity)
            self.kernels.append(facts)


def _first_number(pattern: re.Pattern[str], text: str) -> int | None:
    match = pattern.search(text)
    return None if match is None else int(match[1])


def main() -> int:
    """Compile what one candidate launches, and write the report."""
    job = json.loads(sys.argv[1])
    driver.set_active(_AbsentDevice(job["capability"]))
    recorder = _Recorder(job["folder"])
    recorder.install()
    take_first_configurations()
    error = ""
    tensors = [torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in job["tensors"]]
    try:
        load_entry_point(job["program"], job["entry_point"], len(tensors))(*tensors)
    except NoEntryPointError as missing:
        error = str(missing)
    except Exception as raised:  # noqa: BLE001 - the candidate may raise whatever it likes
        error = tell_raised(raised, job["folder"])
    report = {"kernels": recorder.kernels, "error": error}
    Path(job["report"]).write_text(json.dumps(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
