"""A user namespace of its own: no access to processes outside by ptrace or /proc, and no privilege over anything else.

Without privileges it comes first, since the other namespaces need it; with privileges it comes last.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from evaluators.process.sandbox import kernel, privileges, rlimits
from evaluators.process.sandbox.profiles import Profile

NAME = "user namespace"

_CLONE_NEWUSER = 0x10000000


def apply(profile: Profile, active: Mapping[str, str]) -> str:  # noqa: ARG001 - siblings look the same
    """Enter a user namespace in which only this process's user and group exist, unchanged."""
    user, group = os.geteuid(), os.getegid()
    if user == 0 and not privileges.may_map_root():
        raise PermissionError("root without CAP_SETFCAP has no place in a user namespace")
    kernel.unshare(_CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),
        ("gid_map", f"{group} {group} 1"),
        ("uid_map", f"{user} {user} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    rlimits.bound_processes(profile)
    return "user namespace"
