"""Torch on this host. Imports none of it: versions are read from the installed packages."""

from __future__ import annotations

import platform

from evaluators.hardware.roofline import cpu_facts
from evaluators.languages.cpp.toolchain import cpu_model
from evaluators.languages.triton.toolchain import installed
from messages.tasks import Target


def probe() -> Target:
    """Return which torch runs modules here, and on what.

    Raises:
        EvaluatorError: torch is missing.
    """
    return Target(arch=platform.machine(), march="", toolchain=_versions("torch"), device=cpu_model(), cpu=cpu_facts())


def probe_cuda(device: str, arch: str) -> Target:
    """Return which versions run modules on a GPU.

    Raises:
        EvaluatorError: a package is missing.
    """
    return Target(arch=arch, march="", toolchain=_versions("torch", "triton"), device=device)


def _versions(*names: str) -> str:
    return ", ".join((*(f"{name} {installed(name)}" for name in names), f"Python {platform.python_version()}"))
