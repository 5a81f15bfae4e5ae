"""Namespaces of its own: no network, no shared memory segments or message queues of others, private mounts.

There is no process namespace: a runner would be its first process, which none of its own signals can end (an `abort`
would look different), the judge waits for its runners itself, and CUDA's handles of shared memory do not work across
process namespaces. Other processes are hidden by the private root, and out of reach by user, Landlock and seccomp.
"""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.process.sandbox import kernel
from evaluators.process.sandbox.profiles import Profile

NAME = "namespaces"
LABEL = "net+ipc+uts+mount namespaces"

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x08000000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 1 << 18


def apply(profile: Profile, active: Mapping[str, str]) -> str:  # noqa: ARG001 - siblings look the same
    """Leave the host's namespaces. The new network has no active device."""
    kernel.unshare(_CLONE_NEWNET | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNS)
    kernel.mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    return LABEL
