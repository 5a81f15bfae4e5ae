"""Constructs in C++ and CUDA that a person may want to look at. By tokens: comments and plain strings are left out."""

from __future__ import annotations

import re

from evaluators.build.policy.findings import Finding

_COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z_]\w*")

_KINDS: dict[str, str] = {
    "process": "fork vfork clone clone3 execve execv execvp execl execlp posix_spawn posix_spawnp system popen kill "
    "killpg tgkill setsid prctl ptrace process_vm_readv process_vm_writev pidfd_open pidfd_getfd",
    "network": "socket connect sendto sendmsg getaddrinfo",
    "thread": "pthread_create jthread thread async",
    "signal handler": "signal sigaction setjmp longjmp",
    "other libraries": "dlopen dlmopen dlsym dlvsym dl_iterate_phdr",
    "files": "open openat fopen ifstream ofstream fstream opendir shm_open memfd_create mkdir unlink",
    "memory protection": "mmap mprotect mremap mseal",
    "system call": "syscall",
    "exit": "_exit _Exit quick_exit atexit abort",
    "clock": "clock_gettime gettimeofday rdtsc __rdtsc steady_clock high_resolution_clock",
    "scheduling": "sched_setaffinity sched_setscheduler setpriority nice pthread_setschedparam",
    "CUDA stream": "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cudaStreamBeginCapture",
    "CUDA state": "cudaDeviceReset cudaDeviceSetLimit cudaCtxResetPersistingL2Cache cudaLimitPersistingL2CacheSize "
    "cudaIpcOpenMemHandle cuMemGetAddressRange cudaHostRegister cudaLaunchHostFunc cudaMallocManaged",
}
"""Names by subject."""

_NAMES = {name: kind for kind, names in _KINDS.items() for name in names.split()}
_PATTERNS = (
    (re.compile(r"\b(?:asm|__asm__|__asm)\b[^;]*\bsyscall\b", re.DOTALL), "system call in assembler"),
    (re.compile(r"\.incbin"), "file in assembler"),
    (re.compile(r"__attribute__\s*\(\(\s*(?:constructor|destructor)"), "code at load"),
    (re.compile(r'#\s*include\s*[<"]\s*/'), "include by absolute path"),
    (re.compile(r"\w\s*##\s*\w"), "token pasting"),
    (re.compile(r"/proc/|/sys/|/dev/(?!null)"), "path of the system"),
)
"""Patterns for the whole text, strings included."""


def look(text: str) -> list[Finding]:
    """Return the findings, in the order of their lines."""
    found = [
        Finding(f"{_NAMES[token[0]]}: {token[0]}", _line(bare, token.start()))
        for bare in (_without_comments(text),)
        for token in _TOKEN.finditer(bare)
        if token[0] in _NAMES
    ]
    found += [
        Finding(what, _line(text, match.start()))
        for pattern, what in _PATTERNS
        if (match := pattern.search(text)) is not None
    ]
    return sorted(found, key=lambda finding: finding.line)


def names_in(text: str) -> frozenset[str]:
    """Return all identifiers of a text, those in comments and strings left out."""
    return frozenset(token[0] for token in _TOKEN.finditer(_without_comments(text)))


def _without_comments(text: str) -> str:
    """Blank out comments and strings, keeping all line numbers."""
    return _COMMENT_OR_TEXT.sub(lambda match: "\n" * match[0].count("\n") or " ", text)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
