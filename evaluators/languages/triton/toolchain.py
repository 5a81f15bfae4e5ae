"""Triton on this host. Imports none of it: versions are read from the installed packages."""

from __future__ import annotations

import platform

from evaluators.languages.cpp.toolchain import cpu_model
from messages.base import EvaluatorError
from messages.tasks import Target

ARCH = "interpreter"
_PACKAGES = ("triton", "torch", "numpy")


def probe() -> Target:
    """Return which versions interpret candidates here, and on what. A GPU is not looked for: none is used.

    Raises:
        EvaluatorError: a package is missing.
    """
    found = [f"{name} {installed(name)}" for name in _PACKAGES]
    toolchain = ", ".join((*found, f"Python {platform.python_version()}"))
    return Target(arch=ARCH, march="", toolchain=toolchain, device=f"Triton's interpreter on {cpu_model()}")


def probe_cuda(device: str, arch: str) -> Target:
    """Return which versions compile and run candidates for a GPU. Builders and evaluators need the same.

    Of torch the number counts and not the build (`2.11.0+cu130`): builders on hosts without a GPU have another.

    Args:
        device: the GPU's name.
        arch: `sm_90`.

    Raises:
        EvaluatorError: a package is missing.
    """
    torch = installed("torch").partition("+")[0]
    toolchain = f"triton {installed('triton')}, torch {torch}, Python {platform.python_version()}"
    return Target(arch=arch, march="", toolchain=toolchain, device=device)


def installed(name: str) -> str:
    """Return the version of a package.

    Raises:
        EvaluatorError: it is missing.
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - costs the start-up of every command

    try:
        return version(name)
    except PackageNotFoundError:
        raise EvaluatorError(
            f"{name} is not installed, and candidates in this language need it: `pip install {name}`", permanent=True
        ) from None
