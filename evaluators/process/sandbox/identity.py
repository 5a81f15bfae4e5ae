"""A user that owns nothing: with privileges, candidates run as this user and not as the evaluator's."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from evaluators.process.sandbox import kernel, privileges
from evaluators.process.sandbox.profiles import Profile

NAME = "uid"
NOBODY = 65534


def apply(profile: Profile, active: Mapping[str, str]) -> str:
    """Become the user without rights. Needs a private root, in which that user can read the profile's paths."""
    if os.geteuid() != 0:
        raise PermissionError("only root can become another user")
    if not privileges.may_become_another():
        raise PermissionError("needs CAP_CHOWN, CAP_SETUID and CAP_SETGID")
    if "private root" not in active:
        raise PermissionError("without a private root another user would not reach what was built")
    _refuse_private(profile)
    for folder in (profile.folder, *profile.writes):
        if not folder.startswith(("/dev", "/proc")):
            _give(folder)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # Its own files in /proc belong to it again; other processes of this user cannot read them: see `users`.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    return f"uid {NOBODY}"


def _refuse_private(profile: Profile) -> None:
    """Keep the user if others may not read the needed files: a candidate must not fail because of our file modes."""
    inside = [os.path.join(path, name) for path in profile.needs if os.path.isdir(path) for name in os.listdir(path)]
    for path in (*profile.libraries, *profile.needs, *inside):
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:  # a link to nowhere
            continue
        if not mode & (stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH):
            raise PermissionError(f"only its owner may read {path}")


def _give(folder: str) -> None:
    os.chown(folder, NOBODY, NOBODY)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.lchown(os.path.join(parent, name), NOBODY, NOBODY)
