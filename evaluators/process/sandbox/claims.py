"""The active layers of a runner as one number, which fits into its answer to the judge.

A runner reports it once, before it loads the candidate: later reports could be the candidate's.
"""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.process.sandbox import identity, landlock, namespaces, privileges, rlimits, root, seccomp, users

_BITS = {
    rlimits.NAME: (0, "rlimits"),
    privileges.NAME: (1, "no privileges"),
    users.NAME: (2, "user namespace"),
    namespaces.NAME: (3, namespaces.LABEL),
    root.NAME: (4, "private root"),
    seccomp.NAME: (5, "seccomp"),
    seccomp.PARTLY: (6, "seccomp (may start compilers)"),
}
_ORDER = (
    *(landlock.NAME, seccomp.NAME, seccomp.PARTLY, namespaces.NAME, users.NAME),
    *(root.NAME, identity.NAME, privileges.NAME, rlimits.NAME),
)
_LANDLOCK_AT, _UID_AT = 8, 16
_BYTE, _WORD = 0xFF, 0xFFFFFFFF


def pack(active: Mapping[str, str]) -> int:
    """Return layers, in the form of `Confined.active`, as a number."""
    claim = sum(1 << bit for name, (bit, _) in _BITS.items() if name in active)
    if landlock.NAME in active:
        claim |= int(active[landlock.NAME].split()[-1]) << _LANDLOCK_AT
    if identity.NAME in active:
        claim |= int(active[identity.NAME].split()[-1]) << _UID_AT
    return claim


def unpack(claim: int) -> tuple[str, ...]:
    """Return the layers in a number, in words; the strongest first."""
    told = {name: label for name, (bit, label) in _BITS.items() if claim >> bit & 1}
    if version := claim >> _LANDLOCK_AT & _BYTE:
        told[landlock.NAME] = f"landlock {version}"
    if user := claim >> _UID_AT & _WORD:
        told[identity.NAME] = f"uid {user}"
    return tuple(told[name] for name in _ORDER if name in told)


def may_start_compilers(claim: int) -> bool:
    """Return True if a number is of a process that can start others until it is sealed."""
    return bool(claim >> _BITS[seccomp.PARTLY][0] & 1)


def missing_for_strict(claim: int) -> tuple[str, ...]:
    """Return the missing layers without which no candidate can be trusted; empty if there are none."""
    active = {name for name, (bit, _) in _BITS.items() if claim >> bit & 1}
    filtered = bool(active & {seccomp.NAME, seccomp.PARTLY})
    lacking: list[str] = []
    if not claim >> _LANDLOCK_AT & _BYTE and root.NAME not in active:
        lacking.append("Landlock or a private root")
    if not filtered:
        lacking.append("seccomp")
    if not filtered and namespaces.NAME not in active:
        lacking.append("a network namespace")
    return tuple(lacking)
