"""NVIDIA's GPUs do what an evaluator asks of any vendor's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluators.hardware.vendors.base import Clock, DeviceContext, Facts, SharedArea
from evaluators.hardware.vendors.nvidia.driver import Context, SharedMemory, SpanClock, attach
from evaluators.hardware.vendors.nvidia.facts import gpu_facts
from tests.evaluators.hardware.vendors.contract import VendorContract

# What the type checker holds the package to; calls are looked at below.
CONTEXT: Callable[[], DeviceContext] = Context
SHARED: Callable[[Context, int], SharedArea] = SharedMemory
CLOCK: Callable[[Context, int], Clock] = SpanClock
ATTACH: Callable[[Context, int, int], int] = attach
FACTS: Callable[[str], Facts] = gpu_facts


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU")
class TestNvidia(VendorContract):
    package = "evaluators.hardware.vendors.nvidia"
