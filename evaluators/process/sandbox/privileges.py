"""No privileges, now or later: no capabilities, and none gained by executing a program."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Mapping

from evaluators.process.sandbox import kernel
from evaluators.process.sandbox.profiles import Profile

NAME = "no privileges"

_VERSION_3 = 0x20080522
_CAP_SYS_ADMIN = 21
_CAP_SETPCAP = 8
_CAP_SETFCAP = 31
_CAP_CHOWN, _CAP_SETGID, _CAP_SETUID = 0, 6, 7
_LAST = 40
"""CAP_CHECKPOINT_RESTORE; capabilities that a kernel does not know need not be dropped."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int32))


class _Sets(ctypes.Structure):
    """Effective, permitted, inheritable: the lower 32 capabilities, then the upper."""

    _fields_ = (("words", ctypes.c_uint32 * 6),)


def may_administer() -> bool:
    """Return True if this process may make namespaces and mounts without a user namespace."""
    return _has(_CAP_SYS_ADMIN)


def may_become_another() -> bool:
    """Return True if this process may give files away and change its user."""
    return _has(_CAP_CHOWN) and _has(_CAP_SETGID) and _has(_CAP_SETUID)


def may_map_root() -> bool:
    """Return True if this process, if it is root, may be root of a user namespace of its own."""
    return _has(_CAP_SETFCAP)


def apply(profile: Profile, active: Mapping[str, str]) -> str:  # noqa: ARG001 - siblings look the same
    """Give up all capabilities for good."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_CAP_AMBIENT, kernel.PR_CAP_AMBIENT_CLEAR_ALL)
    if _has(_CAP_SETPCAP):
        for capability in range(_LAST + 1):
            with contextlib.suppress(OSError):  # an older kernel does not know it
                kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
    kernel.system_call(kernel.CAPSET, _Header(_VERSION_3, 0), _Sets())
    return "no privileges"


def _has(capability: int) -> bool:
    with open("/proc/self/status", "rb") as file:
        line = next(line for line in file if line.startswith(b"CapEff:"))
    return bool(int(line.split()[1], 16) >> capability & 1)
