"""System calls that Python does not offer, by number. Each raises OSError with the call's name."""

from __future__ import annotations

import ctypes
import os

IS_X86 = os.uname().machine == "x86_64"
IS_ARM = os.uname().machine == "aarch64"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

# The same number on both architectures.
SECCOMP = 277 if IS_ARM else 317
CAPSET = 91 if IS_ARM else 126
MOUNT_SETATTR = 442
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
PIVOT_ROOT = 41 if IS_ARM else 155

PR_SET_PDEATHSIG, PR_GET_PDEATHSIG = 1, 2
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4


def system_call(number: int, *arguments: int | bytes | ctypes.Structure | None) -> int:
    """Make a system call; bytes and structures are passed by address."""
    passed = [_argument(argument) for argument in arguments]
    result = int(_libc.syscall(ctypes.c_long(number), *passed))
    return _checked(result, f"system call {number}")


def prctl(option: int, *arguments: int) -> int:
    """Call prctl."""
    padded = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(int(_libc.prctl(ctypes.c_int(option), *padded)), f"prctl {option}")


def death_signal() -> int:
    """Return the signal that this process gets when its parent ends; 0: none."""
    number = ctypes.c_int()
    _checked(int(_libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(number), 0, 0, 0)), "prctl")
    return number.value


def unshare(flags: int) -> None:
    """Leave namespaces for new ones."""
    _checked(int(_libc.unshare(ctypes.c_int(flags))), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount."""
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    result = _libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3])
    _checked(int(result), f"mount on {target}")


def detach(target: str) -> None:
    """Unmount a tree, lazily."""
    _checked(int(_libc.umount2(target.encode(), ctypes.c_int(2))), "umount")


def _argument(argument: int | bytes | ctypes.Structure | None) -> object:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, int):
        return ctypes.c_long(argument)
    if isinstance(argument, bytes):
        return ctypes.c_char_p(argument)
    return ctypes.byref(argument)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result
