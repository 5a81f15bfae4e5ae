"""Landlock: reading and writing by path, no TCP, no signals to and no tracing of processes outside.

github.com/torvalds/linux Documentation/userspace-api/landlock.rst. Tracing and /proc/PID/mem of processes outside are
refused by the domain itself (every ABI), TCP from ABI 4, abstract sockets and signals from ABI 6. Not covered: UDP and
named sockets (covered by namespaces and seccomp), reading attributes and following links (hidden by the private root).
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Mapping

from evaluators.process.sandbox import kernel
from evaluators.process.sandbox.profiles import Profile

NAME = "landlock"

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_FOLDERS_CHANGE = 0x1FF0
"""Removing and creating files of all kinds."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_ASK_ABI = 1
_PATH_BENEATH = 1
_WITH_NETWORK, _WITH_SCOPES = 4, 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Return the kernel's version of Landlock."""
    return kernel.system_call(kernel.LANDLOCK_CREATE_RULESET, None, 0, _ASK_ABI)


def apply(profile: Profile, active: Mapping[str, str]) -> str:  # noqa: ARG001 - siblings look the same
    """Enter a domain that allows what the profile names."""
    version = abi()
    handled = _EXECUTE | _WRITE_FILE | _READ_FILE | _READ_DIR | _FOLDERS_CHANGE
    handled |= (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    ruleset = _create(version, handled)
    try:
        reading = _READ_FILE | _READ_DIR | (_EXECUTE if profile.may_start_processes else 0)
        for path in (*profile.reads, "/proc/self"):
            _allow(ruleset, path, reading & handled)
        for path in profile.lists:
            _allow(ruleset, path, _READ_DIR)
        for path in profile.writes:
            _allow(ruleset, path, (reading | _WRITE_FILE | _TRUNCATE | _folder_rights(path)) & handled)
        writing = handled if profile.may_start_processes else handled & ~_EXECUTE
        _allow(ruleset, profile.folder, writing)
        kernel.system_call(kernel.LANDLOCK_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return f"landlock {version}"


def _folder_rights(path: str) -> int:
    return _FOLDERS_CHANGE | _REFER if os.path.isdir(path) else 0


def _create(version: int, handled: int) -> int:
    rules = _Ruleset(
        handled,
        _BIND_TCP | _CONNECT_TCP if version >= _WITH_NETWORK else 0,
        _ABSTRACT_SOCKETS | _SIGNALS if version >= _WITH_SCOPES else 0,
    )
    size = 24 if version >= _WITH_SCOPES else 16 if version >= _WITH_NETWORK else 8
    return kernel.system_call(kernel.LANDLOCK_CREATE_RULESET, rules, size, 0)


def _allow(ruleset: int, path: str, access: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(parent).st_mode):
            access &= _ON_FILES
        kernel.system_call(kernel.LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, _Beneath(access, parent), 0)
    finally:
        os.close(parent)
