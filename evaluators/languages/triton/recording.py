"""Compiles the kernels that a Triton candidate launches, without a GPU. A process of its own: `python -m` of this.

Its argument is a JSON object (`Recording` in `ahead.py`). The candidate's entry point is called with tensors that have
no data (`absent.py`); Triton's own launch path is used, but for the launch, which here ends with the compilation. So
argument types, constants and the specialisation of integers (equal to 1, divisible by 16) are those of that GPU. Of a
kernel with `triton.autotune`, the first configuration that compiles is taken, and told of; in a build the others are
compiled as well, in further processes (`apart.py`): where it runs, all are tried.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
import triton.compiler
from triton.compiler.compiler import ASTSource
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.jit import JITFunction

from evaluators.languages.triton.absent import pretend_gpu
from evaluators.languages.triton.apart import Apart, cores
from evaluators.languages.triton.kernel_needs import BlockLimits, check_places, needs_of, tell_failure
from evaluators.languages.triton.launchers import Launchers
from evaluators.runners.program import NoEntryPointError, load_entry_point, tell_raised

_APART_S = 60.0
"""For the further configurations of autotuned kernels."""


class _Recorder:
    """Stands in for the launch of kernels, and remembers each that was compiled."""

    def __init__(self, folder: str, limits: BlockLimits, apart: Apart | None) -> None:
        self._folder = folder
        self._limits = limits
        self._apart = apart
        self._launchers = Launchers()
        self._kernels: dict[str, dict[str, object]] = {}
        self._failures = 0

    @property
    def kernels(self) -> list[dict[str, object]]:
        return [*self._kernels.values()]

    def wait(self) -> None:
        self._launchers.wait()

    def install(self) -> None:
        launch = JITFunction.run

        def record(kernel: JITFunction[object], *args: object, **options: object) -> None:
            options["warmup"] = True

            def compile_it() -> object:
                check_places(args, options)
                return launch(kernel, *args, **options)

            self._record(kernel, compile_it)

        JITFunction.run = record
        if self._apart is not None:
            _compile_launchers_too(self._launchers)
        run = Autotuner.run

        def run_first(tuner: Autotuner, *args: object, **options: object) -> object:
            return self._first(tuner, lambda: run(tuner, *args, **options))

        Autotuner.run = run_first

    def _first(self, tuner: Autotuner, run: Callable[[], object]) -> object:
        configurations = tuner.configs

        def run_one(configuration: Config) -> object:
            tuner.configs = [configuration]
            try:
                return run()
            finally:
                tuner.configs = configurations

        for number, configuration in enumerate(configurations, start=1):
            before, failures = dict(self._kernels), self._failures
            result = run_one(configuration)
            if self._failures == failures or number == len(configurations):
                if self._apart is not None and len(self._kernels) > len(before):
                    for other in configurations[number:]:
                        self._apart.run(partial(run_one, other))
                return result
            self._kernels = before
        return None

    def _record(self, kernel: JITFunction[object], compile_it: Callable[[], object]) -> None:
        name = str(kernel.fn.__name__)
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                compiled = compile_it()
        except Exception as error:  # noqa: BLE001 - the compiler raises many kinds, and each is the answer
            told = tell_failure(kernel, error, self._folder)
            self._failures += 1
            self._add(name, told, {"name": name, "error": told})
            return
        needs = needs_of(name, compiled, printed.getvalue(), self._limits)
        self._failures += bool(needs["error"])
        self._add(name, compiled.metadata.hash, needs)  # type: ignore[attr-defined]

    def _add(self, name: str, identity: str, needs: dict[str, object]) -> None:
        """Keep what is new: a kernel may be launched many times for the same types."""
        self._kernels.setdefault(name + identity, needs)


def _compile_launchers_too(launchers: Launchers) -> None:
    compile_kernel = triton.compiler.compile

    def compile_both(source: ASTSource, *args: object, **options: object) -> object:
        launchers.begin(source)
        return compile_kernel(source, *args, **options)

    # A kernel takes the function from the package when it is launched for the first time.
    triton.compiler.compile = compile_both


def record(job: Mapping[str, object]) -> dict[str, object]:
    """Compile what one candidate launches. Once per process."""
    folder = str(job["folder"])
    capability = int(str(job["capability"]))
    most = int(str(job.get("most_apart", 0)))
    apart = Apart(at_once=cores(), most=most, limit_s=_APART_S) if most else None
    recorder = _Recorder(folder, BlockLimits(capability, int(str(job["shared_bytes"]))), apart)
    recorder.install()
    error = ""
    with pretend_gpu(capability):
        workloads = _arguments_of(job)
        try:
            function = load_entry_point(str(job["program"]), str(job["entry_point"]), len(workloads[0]))
            for arguments in workloads:
                function(*arguments)
        except NoEntryPointError as missing:
            error = str(missing)
        except Exception as raised:  # noqa: BLE001 - the candidate may raise whatever it likes
            error = tell_raised(raised, folder)
    if apart is not None:
        apart.wait()
    recorder.wait()
    return {"kernels": recorder.kernels, "error": error}


def _arguments_of(job: Mapping[str, object]) -> list[list[object]]:
    """Return what each workload calls the entry point with; tensors have no contents."""
    first, others = job["tensors"], job.get("others")
    workloads = [first, *(others if isinstance(others, list) else ())]
    return [[*map(_argument, told)] for told in workloads if isinstance(told, list)]


def _argument(told: object) -> object:
    if not isinstance(told, list):
        return told
    shape, dtype = told
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")


def main() -> int:
    """Compile what one candidate launches, and write the report."""
    job = json.loads(sys.argv[1])
    Path(job["report"]).write_text(json.dumps(record(job)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
