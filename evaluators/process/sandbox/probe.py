"""Finds the layers of the sandbox that this host allows, by entering it: `probe_layers() -> HostLayers`."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile

from evaluators.process.sandbox import identity, landlock, namespaces, privileges, rlimits, root, seccomp, users
from evaluators.process.sandbox.claims import missing_for_strict, unpack
from evaluators.process.sandbox.profiles import OUR_FOLDER
from messages.base import EvaluatorError, Isolation

WITHOUT = {
    landlock.NAME: "a candidate may read what this user may, and signal its processes",
    seccomp.NAME: "a candidate may start processes and open sockets",
    namespaces.NAME: "a candidate shares this host's shared memory and, until compilers are done, its network",
    users.NAME: "a candidate may look into other candidates' processes",
    root.NAME: "a candidate sees which files there are",
    identity.NAME: "a candidate runs as the user who runs the evaluator",
    privileges.NAME: "a candidate keeps this process's privileges",
    rlimits.NAME: "a candidate may use memory and files without end",
}
"""Consequence, by layer, of a host without it that has all others."""

_SCRIPT = (
    f"import sys; sys.path.insert(0, {OUR_FOLDER!r}); from evaluators.process.sandbox.confine import report; report()"
)
_LIMIT_S = 30.0


class HostLayers:
    """The layers that a process on this host can enter, and the reasons for missing ones."""

    def __init__(self, claim: int, missing: dict[str, str]) -> None:
        self.layers = unpack(claim)
        """Layers in words, the strongest first."""
        self.missing = missing
        """Reason by the layer's name, for layers that the host lacks."""
        self.missing_for_strict = missing_for_strict(claim)
        """Missing layers that `--isolation strict` requires."""


@functools.cache
def probe_layers() -> HostLayers:
    """Enter the sandbox in a short-lived process and return its layers. Cached per process; blocks.

    Raises:
        EvaluatorError: the process ended without an answer.
    """
    with tempfile.TemporaryDirectory(prefix="ksearch-probe-") as folder:
        command = [sys.executable, "-I", "-S", "-c", _SCRIPT, folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=True)  # noqa: S603 - our own code
            answer = json.loads(done.stdout)
        except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
            raise EvaluatorError(f"cannot find out how candidates are isolated here: {error}") from error
    return HostLayers(int(answer["claim"]), {str(name): str(why) for name, why in answer["missing"].items()})


def require_layers(isolation: Isolation) -> None:
    """Refuse to run candidates here with fewer layers than required. Blocks, the first time.

    Raises:
        EvaluatorError: `strict`, and the host lacks a required layer; names it.
    """
    if isolation == "auto":
        return
    host = probe_layers()
    if host.missing_for_strict:
        raise EvaluatorError(
            f"--isolation strict: this host lacks {', '.join(host.missing_for_strict)}; "
            "ksearch doctor says why, and --isolation auto goes without",
            permanent=True,
        )
