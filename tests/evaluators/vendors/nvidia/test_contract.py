"""NVIDIA's GPUs do what an evaluator asks of any vendor's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.evaluators.vendors.contract import VendorContract


@pytest.mark.gpu
@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU")
class TestNvidia(VendorContract):
    package = "evaluators.vendors.nvidia"
