"""Compiles the kernels that a program launches in processes of their own, several at once, while the program goes on.

Triton reads a kernel's source in a tenth of a second, and what follows takes five times as long; a forked process does
both. An error in the source is raised by the launch on a GPU, and the program may catch it: so a launch waits until the
source was read. Most have none: a program that can be called again is called without waiting first. Compiled kernels
are in Triton's cache. Of a kernel with `triton.autotune` all configurations are compiled that it would try; none is
measured.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import triton.compiler
from triton.compiler.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from evaluators.languages.triton.kernel_needs import BlockLimits, check_places, needs_of, tell_failure
from evaluators.languages.triton.launchers import Launchers

_READ, _REFUSED = b"r", b"x"
"""First byte from a compiling process, about the source; then the kernel's needs or its error, in JSON."""
_COMPILED_ELSEWHERE = object()
_CHUNK_BYTES = 1 << 16
_MOST_KERNELS, _MOST_BYTES = 100, 128 << 20
"""Of one program: what is compiled travels, and a file of options may ask for any number."""

Compile = Callable[..., object]


class _Running(NamedTuple):
    pid: int
    number: int
    """Of the kernel, in the order of first launches."""
    name: str
    told: bytearray


class Compilers:
    """Stands in for Triton's compiler, for the rest of this process."""

    def __init__(
        self,
        folder: str,
        limits: BlockLimits,
        *,
        at_once: int,
        deadline: float,
        waits: bool,
        tell: Callable[[Mapping[str, object]], None],
    ) -> None:
        """Take note.

        Args:
            folder: where the program's files lie.
            limits: of the GPU.
            at_once: processes that compile at once.
            deadline: by `time.monotonic`: nothing is begun after it, nor waited for.
            waits: whether a launch waits until the kernel's source was read; else see `is_misled`.
            tell: called with each kernel as it is compiled: the fields of `CompiledKernel` in `ahead.py`, and `number`.
        """
        self._folder, self._limits = folder, limits
        self._at_once, self._deadline, self._waits, self._tell = at_once, deadline, waits, tell
        self._begun: set[str] = set()
        self._running: dict[int, _Running] = {}
        self._launchers = Launchers()
        self._kept_bytes = 0
        self.left_out = 0
        """Kernels for which time or space did not suffice."""
        self.refused: tuple[CompilationError, str] | None = None
        """The latest error in a kernel's source, and its text."""
        self.is_misled = False
        """True if the program went on after a launch that would have raised an error."""

    def install(self) -> None:
        """Have every launch end with the compilation, and every compilation come here."""
        compile_here, launch = triton.compiler.compile, JITFunction.run

        def begin(source: ASTSource, target: object = None, options: object = None, **more: object) -> object:
            identity = f"{source.hash()} {target} {options}"
            if identity not in self._begun:
                self._launchers.begin(source)
                self._begin(source, lambda: compile_here(source, target=target, options=options, **more))
                self._begun.add(identity)
            return _COMPILED_ELSEWHERE

        def end_with_compilation(kernel: JITFunction[object], *args: object, **options: object) -> None:
            check_places(args, options)
            try:
                launch(kernel, *args, **{**options, "warmup": True})
            except CompilationError as error:
                told = tell_failure(kernel, error, self._folder)
                self.refused = (error, f"kernel {kernel.fn.__name__}:\n{told}")
                raise

        # A kernel takes the function from the package when it is launched for the first time.
        triton.compiler.compile = begin
        JITFunction.run = end_with_compilation
        Autotuner.do_bench = property(lambda _tuner: _call_once)
        # Its files on disk would be measurements.
        Autotuner.check_disk_cache = lambda _tuner, _key, _configurations, measure: measure()

    def wait(self) -> None:
        """Wait until everything is compiled, or the time is over."""
        while self._running and time.monotonic() < self._deadline:
            self._collect()
        self.left_out += len(self._running)
        self._launchers.wait()

    def _begin(self, source: ASTSource, compile_it: Callable[[], object]) -> None:
        """Have a kernel compiled; return as soon as its source was read, or at once."""
        while len(self._running) >= self._at_once and time.monotonic() < self._deadline:
            self._collect()
        is_full = len(self._begun) >= _MOST_KERNELS or self._kept_bytes >= _MOST_BYTES
        if is_full or time.monotonic() >= self._deadline:
            self.left_out += 1
            return
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self._be_compiler(source, compile_it, writing)
            finally:
                os._exit(1)
        os.close(writing)
        said = os.read(reading, 1) if self._waits else b""
        self._running[reading] = _Running(pid, len(self._begun), str(source.name), bytearray(said))
        if said == _REFUSED:
            del self._running[reading]
            os.close(reading)
            os.waitpid(pid, 0)
            compile_it()

    def _be_compiler(self, source: ASTSource, compile_it: Callable[[], object], writing: int) -> None:
        """Compile, and tell: to the end of the process."""
        read_source = ASTSource.make_ir
        has_read = False

        def read_and_say_so(*args: object, **options: object) -> object:
            nonlocal has_read
            module = read_source(*args, **options)
            os.write(writing, _READ)
            has_read = True
            return module

        ASTSource.make_ir = read_and_say_so
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                compiled = compile_it()
        except CompilationError as error:
            told = {"name": source.name, "error": tell_failure(source.fn, error, self._folder)}
            os.write(writing, (b"" if has_read else _REFUSED) + json.dumps(told).encode())
        except Exception as error:  # noqa: BLE001 - passes and ptxas raise many kinds, and each is the answer
            told = {"name": source.name, "error": tell_failure(source.fn, error, self._folder)}
            os.write(writing, (b"" if has_read else _READ) + json.dumps(told).encode())
        else:
            kept: Mapping[str, str | bytes] = compiled.asm  # type: ignore[attr-defined]
            size_bytes = sum(len(content) for content in kept.values())
            needs = {**needs_of(str(source.name), compiled, printed.getvalue(), self._limits), "size_bytes": size_bytes}
            os.write(writing, (b"" if has_read else _READ) + json.dumps(needs).encode())
        os._exit(0)

    def _collect(self) -> None:
        patience = max(0.0, self._deadline - time.monotonic())
        ready, _, _ = select.select([*self._running], [], [], patience)
        for reading in ready:
            if chunk := os.read(reading, _CHUNK_BYTES):
                self._running[reading].told.extend(chunk)
            else:
                self._end(reading, self._running.pop(reading))

    def _end(self, reading: int, ended: _Running) -> None:
        os.close(reading)
        _, status = os.waitpid(ended.pid, 0)
        self.is_misled |= ended.told.startswith(_REFUSED)
        try:
            needs = json.loads(ended.told[1:])
        except ValueError:
            code = os.waitstatus_to_exitcode(status)
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            needs = {"name": ended.name, "error": f"Triton's compiler ended early ({how})"}
        self._kept_bytes += int(str(needs.get("size_bytes", 0)))
        self._tell({**needs, "number": ended.number})


def _call_once(call: Callable[[], object], **_how: object) -> list[float]:
    """Stand in for the measurement of one configuration: all are as good."""
    call()
    return [1.0, 1.0, 1.0]
