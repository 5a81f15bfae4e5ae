"""What coders are told of each language. Siblings: each has `RULES`, `EXAMPLE` and `advice(hardware)`.

- `CRAFTS["cuda"].RULES`: what holds on every device, as a list
- `CRAFTS["cuda"].EXAMPLE`: a whole answer for another, small task
- `CRAFTS["cuda"].advice(hardware)`: what pays on one generation, by lines; empty where nothing is known
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from actors.coder.craft import cpp, cuda, python, triton
from evaluators.hardware.roofline import Hardware
from messages.base import Language


class Craft(Protocol):
    """One language's module."""

    RULES: str
    EXAMPLE: str

    def advice(self, hardware: Hardware) -> tuple[str, ...]:
        """Return what pays on this device."""


CRAFTS: Mapping[Language, Craft] = {
    "cpp": cpp,
    "cuda": cuda,
    "triton": triton,
    "python": python,
}
