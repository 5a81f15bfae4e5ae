"""Output of nvcc, its host compiler, ptxas and the linkers, shortened for a model."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from evaluators.languages.compiled import CompilerError, first_errors
from evaluators.languages.cpp.diagnostics import bound
from evaluators.languages.cpp.diagnostics import explain as explain_host
from evaluators.languages.cuda.mangling import readable
from messages.verdicts import DidNotBuild

_MAX_REASON = 300
_MAX_KERNELS = 24

_HEADER = re.compile(
    r"^(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning|remark)(?: #[\w-]+)?: "
)
_NOTE = re.compile(r"^[^\s(][^(\n]*\(\d+\): note")
_INSTANTIATED = re.compile(r"at line (?P<line>\d+) of (?:\./)?(?P<file>\S+)$", re.MULTILINE)
_TEMPORARY = re.compile(r"[^\s,:]*tmpxft_[^\s,:]*?(?P<suffix>\.[a-z]+)?(?=[,:\s]|$)", re.MULTILINE)
_ASSEMBLER = re.compile(
    r"^(?:ptxas(?: \S+, line \d+; error\s*|\s+error|\s+fatal)|nvlink\s+(?:error|fatal))\s*: (?P<what>.+)$", re.MULTILINE
)
_USELESS = ("aborted due to errors", "Ptx assembly aborted")
_MANGLED = re.compile(r"\b_Z\w+")
_NOISE = re.compile(
    r"^(?:ptxas info .*|nvlink info .*|    \d+ bytes stack frame, .*|Remark: The warnings can be suppressed.*|"
    r"\d+ errors? detected in the compilation .*|ptxas fatal .*aborted due to errors)\n?",
    re.MULTILINE,
)
_ENTRY = re.compile(r"^ptxas info\s*: Compiling entry function '(?P<name>[^']+)'", re.MULTILINE)
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


class KernelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel's needs, as the assembler prints them."""

    name: str
    registers: int
    """Per thread."""
    spilled_bytes: int
    """Registers stored to local memory, per thread."""
    stack_bytes: int
    shared_bytes: int
    """Static shared memory per block; what is asked for at the launch comes on top."""

    def __str__(self) -> str:
        return (
            f"kernel {self.name}: {self.registers} registers, {self.spilled_bytes} bytes spilled, "
            f"{self.shared_bytes} bytes of static shared memory, {self.stack_bytes} bytes of stack"
        )


def read_kernels(log: str) -> tuple[KernelFacts, ...]:
    """Return the facts that `-Xptxas -v` printed, in the order of the kernels."""
    begins = [*_ENTRY.finditer(log)]
    ends = [*(match.start() for match in begins[1:]), len(log)]
    return tuple(_facts(match["name"], log[match.end() : end]) for match, end in zip(begins, ends, strict=False))


def summarize(log: str) -> str:
    """Return one line per kernel, then what is left of the log: warnings."""
    kernels = read_kernels(log)
    lines = [str(kernel) for kernel in kernels[:_MAX_KERNELS]]
    if len(kernels) > _MAX_KERNELS:
        lines.append(f"({len(kernels) - _MAX_KERNELS} more kernels)")
    return bound("\n".join((*lines, _clean(log))))


def explain(log: str, own_files: tuple[str, ...]) -> DidNotBuild:
    """Return the first error in one line, and the first errors with their source lines.

    Errors in the candidate's own files come first: those inside a header of the system are their consequence, and are
    shown with the place in those files that led there. Then those of the assemblers and linkers of the device, then
    whatever the compiler and linker of the host said.
    """
    log = _clean(log)
    if errors := [error for block in _blocks(log) if (error := _error(block, own_files)) is not None]:
        reason, shown = first_errors(errors, own_files)
        return DidNotBuild(reason=reason, log=bound(shown))
    said = [match["what"] for match in _ASSEMBLER.finditer(log) if not any(word in match["what"] for word in _USELESS)]
    if said:
        return DidNotBuild(reason=f"assembler: {said[-1]}"[:_MAX_REASON], log=bound(log))
    return explain_host(log, own_files)


def _facts(name: str, text: str) -> KernelFacts:
    frame = _FRAME.search(text)
    shared = _SHARED.search(text)
    registers = _REGISTERS.search(text)
    return KernelFacts(
        name=readable(name),
        registers=int(registers[1]) if registers else 0,
        spilled_bytes=int(frame[2]) if frame else 0,
        stack_bytes=int(frame[1]) if frame else 0,
        shared_bytes=int(shared[1]) if shared else 0,
    )


def _clean(log: str) -> str:
    log = _NOISE.sub("", log).replace("__attribute__((global))", "__global__")
    log = log.replace("__attribute__((device))", "__device__").replace("__attribute__((shared))", "__shared__")
    log = _TEMPORARY.sub(lambda match: f"compiled{match['suffix'] or ''}", log)
    return re.sub(r"\n{2,}", "\n", _MANGLED.sub(lambda match: readable(match[0]), log)).strip()


def _blocks(log: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in log.splitlines():
        if _HEADER.match(line):
            if block:
                yield block
            block = [line]
        elif block:
            block.append(line)
    if block:
        yield block


def _error(block: list[str], own_files: tuple[str, ...]) -> CompilerError | None:
    """Return what a diagnostic says, without what instantiated what; none for warnings and remarks."""
    header = _HEADER.match(block[0])
    if header is None or "error" not in header["kind"]:
        return None
    file = header["file"].removeprefix("./")
    details: list[str] = []
    for line in block[1:]:
        if _NOTE.match(line) or line.strip() == "detected during:":
            break
        details.append(line)
    led = [match for match in _INSTANTIATED.finditer("\n".join(block)) if match["file"] in own_files]
    return CompilerError(
        file=file,
        headline=block[0],
        message=block[0][header.end() :],
        details=tuple(details),
        came_from=f"{led[-1]['file']}:{led[-1]['line']}" if led and file not in own_files else "",
    )
