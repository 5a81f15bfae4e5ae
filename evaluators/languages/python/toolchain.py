"""Torch on this host's CPU. Imports none of it: versions are read from the installed packages."""

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
    toolchain = f"torch {installed('torch')}, Python {platform.python_version()}"
    return Target(arch=platform.machine(), march="", toolchain=toolchain, device=cpu_model(), cpu=cpu_facts())
