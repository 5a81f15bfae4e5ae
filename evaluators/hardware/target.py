"""Names of devices (`cpu`, `cuda:0`, …) and the targets that artifacts are built for."""

from __future__ import annotations

import os

from evaluators.languages import support_of
from messages.base import ConfigError, EvaluatorError, Language
from messages.tasks import Platform, Target

_VISIBLE = "CUDA_VISIBLE_DEVICES"
CPU = "cpu"


def platform_of(device: str) -> Platform:
    """Return the platform of a device.

    Raises:
        ConfigError: it is not a device.
    """
    if device == CPU:
        return "cpu"
    kind, _, index = device.partition(":")
    if kind == "cuda" and index.isdecimal():
        return "cuda"
    raise ConfigError(f"{device!r} is no device: it is cpu, or cuda:0, cuda:1, …")


def devices_of(text: str) -> tuple[str, ...]:
    """Return the devices in a list with commas, each once.

    Raises:
        ConfigError: there is none, one occurs twice, one is not a device, or the CPU is listed with GPUs.
    """
    devices = tuple(name.strip() for name in text.split(",") if name.strip())
    if not devices or len(set(devices)) < len(devices):
        raise ConfigError(f"{text!r} names no device, or one twice: it is cpu, or cuda:0, or cuda:0,cuda:1, …")
    if len({platform_of(device) for device in devices}) > 1:
        raise ConfigError(f"{text!r}: a run is for devices of one kind, cpu or GPUs")
    return devices


def physical_gpu(device: str) -> str:
    """Return the number or UUID of a GPU of this host.

    Raises:
        ConfigError: it does not exist, or is hidden by `CUDA_VISIBLE_DEVICES`.
    """
    index = int(device.partition(":")[2])
    if _VISIBLE not in os.environ:
        return str(index)
    visible = [name.strip() for name in os.environ[_VISIBLE].split(",") if name.strip()]
    if index >= len(visible):
        raise ConfigError(f"there is no {device}: {_VISIBLE} shows {len(visible)} GPUs")
    return visible[index]


def visible_gpu(device: str) -> dict[str, str]:
    """Return the environment in which a process sees only this device; empty for a CPU."""
    if platform_of(device) == "cpu":
        return {}
    return {_VISIBLE: physical_gpu(device), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def probe_target(language: Language, device: str = "cpu") -> Target:
    """Return the target of candidates in this language here. Runs the compiler once (some 10 ms).

    Args:
        language: the candidates' language.
        device: `cpu`, or `cuda:0`, `cuda:1`, ….

    Raises:
        EvaluatorError: there is no usable toolchain; names the package to install.
        ConfigError: this release does not support the language.
    """
    return support_of(language, platform_of(device)).probe_target(device)


def check_target(own: Target, asked: Target) -> None:
    """Check that an artifact was built for a host like this one.

    Raises:
        EvaluatorError: it was not.
    """
    if own.fingerprint != asked.fingerprint:
        raise EvaluatorError(
            f"built for {_say(asked)}, but this host is {_say(own)}: evaluate it where it was built for",
            permanent=True,
        )


def _say(target: Target) -> str:
    march = f" -march={target.march}" if target.march else ""
    return f"{target.arch}{march} by {target.toolchain!r}"
