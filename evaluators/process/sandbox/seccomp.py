"""seccomp-BPF filters: system calls that candidates do not need fail with EPERM.

None kills the process, so that libraries that try such calls continue.

Everything else is allowed: files, memory, threads, clocks. A filter reads arguments from registers; it never follows a
pointer. `clone3`, with flags in memory, does not exist (ENOSYS): libraries then use `clone`.
docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping

from evaluators.process.sandbox import kernel
from evaluators.process.sandbox.numbers import NUMBERS
from evaluators.process.sandbox.profiles import Profile

NAME = "seccomp"
PARTLY = "seccomp, partly"
"""State while compilers may still be started."""

_ALWAYS = (
    # mounts, modules, clocks, the machine
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "unshare", "setns", "swapon", "swapoff", "acct", "quotactl"),
    *("quotactl_fd", "reboot", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"),
    *("settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm"),
    *("syslog", "vhangup", "lookup_dcookie", "nfsservctl"),
    # large, young or dangerous parts of the kernel
    *("bpf", "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key"),
    *("perf_event_open", "userfaultfd", "fanotify_init", "name_to_handle_at", "open_by_handle_at", "personality"),
    "modify_ldt",
    # other processes
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp", "pidfd_getfd"),
    *("move_pages", "migrate_pages", "ioprio_set"),
    # the network
    *("socket", "connect", "bind", "listen", "accept", "accept4"),
    # other users
    *("setuid", "setgid", "setreuid", "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid"),
)
_OF_RUNNERS = (
    *("execve", "execveat", "fork", "vfork", "setpgid", "setsid", "socketpair", "mq_open", "msgget", "semget"),
    *("shmget", "tkill", "pidfd_open", "pidfd_send_signal"),
    "timer_create",  # may send SIGCONT, which continues a process that the judge has stopped
)
_ON_ITSELF = ("kill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "prlimit64")
"""Allowed on this process only: its id is their first argument."""
_SCHEDULING = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
"""These too, also while compilers may be started: candidates share one user, who may schedule all own processes, and a
candidate that is checked would slow another that is timed."""

_ARCHITECTURE = 0xC00000B7 if kernel.IS_ARM else 0xC000003E
_X32_BIT = 0x40000000
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
_LOAD, _EQUALS, _AT_LEAST, _HAS_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_REFUSE, _ABSENT = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS
_WITHOUT_EFFECT = _FAIL
"""Succeeds without effect, so that thread pools that pin their threads continue: glibc ends a thread that it cannot
pin."""
_CLONE_THREAD, _CLONE_ANY_NAMESPACE = 0x00010000, 0x7E020000
_PR_SET_PDEATHSIG = 1
_F_SETSIG = 10
"""Of fcntl: chooses the signal for events of a file, SIGCONT included."""
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_SPECULATES = 4
"""Kernels before 5.16 speculate less in a filtered process unless asked not to, which would slow candidates down."""


class _Program(ctypes.Structure):
    """sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def apply(profile: Profile, active: Mapping[str, str]) -> str:  # noqa: ARG001 - siblings look the same
    """Install the filter of a profile; see `install`."""
    install(starts_processes=profile.may_start_processes, keeps_cores=profile.keeps_cores)
    return NAME


def install(*, starts_processes: bool, keeps_cores: bool = False) -> None:
    """Install a filter in all threads of this process.

    Args:
        starts_processes: leave fork and exec, and further calls for starting processes.
        keeps_cores: make changes of affinity succeed without effect.

    Raises:
        OSError: the host does not permit it, or its architecture has unknown numbers.
    """
    if not (kernel.IS_X86 or kernel.IS_ARM):
        raise OSError(errno.ENOSYS, "no system call numbers are known for this architecture")
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    code = _compile(starts_processes=starts_processes, keeps_cores=keeps_cores)
    program = _Program(len(code) // 8, code)
    try:
        thread = _set_filter(program, _ALL_THREADS | _SPECULATES)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        thread = _set_filter(program, _ALL_THREADS)  # gVisor knows no other flag, and slows nothing down
    if thread:
        raise OSError(errno.EBUSY, f"thread {thread} has a filter of its own")


def _set_filter(program: _Program, flags: int) -> int:
    return kernel.system_call(kernel.SECCOMP, _SET_MODE_FILTER, flags, program)


def _compile(*, starts_processes: bool, keeps_cores: bool) -> bytes:
    own = os.getpid()
    code = [
        _load(_ARCHITECTURE_AT),
        *_unless(_EQUALS, _ARCHITECTURE, [_return(_REFUSE)]),
        _load(_NUMBER_AT),
        *([] if kernel.IS_ARM else _if(_AT_LEAST, _X32_BIT, [_return(_REFUSE)])),
    ]
    code += _on("clone3", [_return(_ABSENT)])
    for name in (*_ALWAYS, *(() if starts_processes else _OF_RUNNERS)):
        code += _on(name, [_return(_REFUSE)])
    if keeps_cores:
        code += _on("sched_setaffinity", [_return(_WITHOUT_EFFECT)])
    for name in _SCHEDULING:
        code += _on(name, _own_process_only(own), last=_ALLOW)
    flags = _if(_HAS_BITS, _CLONE_ANY_NAMESPACE, [_return(_REFUSE)])
    if not starts_processes:
        flags += _unless(_HAS_BITS, _CLONE_THREAD, [_return(_REFUSE)])
        code += _on("prctl", [_load(_ARGUMENTS_AT), *_if(_EQUALS, _PR_SET_PDEATHSIG, [_return(_REFUSE)])], last=_ALLOW)
        code += _on("fcntl", [_load(_ARGUMENTS_AT + 8), *_if(_EQUALS, _F_SETSIG, [_return(_REFUSE)])], last=_ALLOW)
        for name in _ON_ITSELF:
            code += _on(name, _own_process_only(own), last=_ALLOW)
        code += _on("setpriority", [_load(_ARGUMENTS_AT), *_unless(_EQUALS, 0, [_return(_REFUSE)]), *_who(own)])
    code += _on("clone", [_load(_ARGUMENTS_AT), *flags], last=_ALLOW)
    return b"".join((*code, _return(_ALLOW)))


def _who(own: int) -> list[bytes]:
    return [_load(_ARGUMENTS_AT + 8), *_one_of(own)]


def _own_process_only(own: int) -> list[bytes]:
    return [_load(_ARGUMENTS_AT), *_one_of(own)]


def _one_of(own: int) -> list[bytes]:
    """Allow 0 and the process's own id; refuse all others."""
    allowed = [_return(_ALLOW)]
    return [*_if(_EQUALS, 0, allowed), *_if(_EQUALS, own, allowed), _return(_REFUSE)]


def _on(name: str, then: list[bytes], *, last: int | None = None) -> list[bytes]:
    number = NUMBERS[name][1 if kernel.IS_ARM else 0]
    if number is None:
        return []
    return _if(_EQUALS, number, then if last is None else [*then, _return(last)])


def _if(test: int, value: int, then: list[bytes]) -> list[bytes]:
    return [_instruction(test, 0, len(then), value), *then]


def _unless(test: int, value: int, then: list[bytes]) -> list[bytes]:
    return [_instruction(test, len(then), 0, value), *then]


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, 0, 0, offset)


def _return(value: int) -> bytes:
    return _instruction(_RETURN, 0, 0, value)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
