"""Triton's interpreter on this host. Imports none of it: versions are read from the installed packages."""

from __future__ import annotations

import platform

from evaluators.languages.cpp.toolchain import cpu_model
from messages.errors import EvaluatorError
from messages.tasks import Target

ARCH = "interpreter"
_PACKAGES = ("triton", "torch", "numpy")


def probe() -> Target:
    """Return which versions interpret candidates here, and on what. A GPU is not looked for: none is used.

    Raises:
        EvaluatorError: a package is missing.
    """
    found = [f"{name} {_version(name)}" for name in _PACKAGES]
    toolchain = ", ".join((*found, f"Python {platform.python_version()}"))
    return Target(arch=ARCH, march="", toolchain=toolchain, device=f"Triton's interpreter on {cpu_model()}")


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - costs the start-up of every command

    try:
        return version(name)
    except PackageNotFoundError:
        raise EvaluatorError(
            f"{name} is not installed, and Triton's interpreter needs it: `pip install {name}`", permanent=True
        ) from None
