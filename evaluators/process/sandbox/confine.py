"""Puts a process behind all layers that the host allows, in the only order in which they can be entered.

- `confine(profile) -> Confined`: in a process of one thread, before the candidate is loaded
- `seal(confined)`: removes system calls that `confine` could not remove yet
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

from evaluators.process.sandbox import (
    claims,
    identity,
    kernel,
    landlock,
    namespaces,
    privileges,
    rlimits,
    root,
    seccomp,
    users,
)
from evaluators.process.sandbox.profiles import Profile, run

_WITH_PRIVILEGES = (namespaces, root, identity, users, rlimits, privileges, landlock, seccomp)
_WITHOUT = (users, namespaces, root, identity, rlimits, privileges, landlock, seccomp)
ALL = tuple(layer.NAME for layer in _WITH_PRIVILEGES)
"""Names of the layers."""


class Confined:
    """The active layers of a process."""

    def __init__(self) -> None:
        self.active: dict[str, str] = {}
        """Description by the layer's name: `landlock 7`, `uid 65534`."""
        self.missing: dict[str, str] = {}
        """Reason by the layer's name, for layers that the host lacks."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Return the active layers in words, the strongest first."""
        return claims.unpack(self.claim)

    @property
    def claim(self) -> int:
        """Return the active layers as the number of a runner's answer."""
        return claims.pack(self.active)


def confine(profile: Profile, *, without: frozenset[str] = frozenset()) -> Confined:
    """Enter every layer that the host allows. There is no way back.

    The process must have one thread, and no open descriptor that the candidate may not have. It still ends with its
    parent, if it did.
    """
    confined = Confined()
    parent, signal = os.getppid(), kernel.death_signal()
    for layer in _WITH_PRIVILEGES if privileges.may_administer() else _WITHOUT:
        if layer is landlock and signal:
            # A process that changes its user loses the signal of its parent's end; behind seccomp it could not request
            # it again.
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal)
            if os.getppid() != parent:
                os._exit(1)
        if layer.NAME in without or (layer is seccomp and profile.sealed_later):
            continue
        _enter(layer, profile, confined)
    if profile.name != "build":
        _keep_temporary_files_in(profile.folder)
    return confined


def seal(confined: Confined, *, may_start_compilers: bool = False) -> None:
    """Remove system calls from all threads of this process, where `confine` could not yet."""
    name = seccomp.PARTLY if may_start_compilers else seccomp.NAME
    try:
        seccomp.install(starts_processes=may_start_compilers)
    except OSError as error:
        confined.missing[seccomp.NAME] = error.strerror or str(error)
        return
    confined.active.pop(seccomp.PARTLY, None)
    confined.active[name] = name


def report() -> None:
    """Enter the sandbox with the folder in the argument, and print the claim and the missing layers as JSON."""
    confined = confine(run(sys.argv[1], reads=(), memory_bytes=0, file_bytes=0))
    os.write(1, json.dumps({"claim": confined.claim, "missing": confined.missing}).encode())


def _keep_temporary_files_in(folder: str) -> None:
    os.environ["HOME"] = os.environ["TMPDIR"] = folder
    if "tempfile" in sys.modules:
        vars(sys.modules["tempfile"])["tempdir"] = folder


def _enter(layer: ModuleType, profile: Profile, confined: Confined) -> None:
    try:
        confined.active[layer.NAME] = layer.apply(profile, confined.active)
    except OSError as error:
        confined.missing[layer.NAME] = error.strerror or str(error)
