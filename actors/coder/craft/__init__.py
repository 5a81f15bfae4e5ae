"""Advice to coders for each language.

Siblings: each has `RULES` (for every device), `EXAMPLE` (an answer to another, small task) and `advice(hardware)`
(lines for one generation; may be empty).
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
        """Return advice for this device."""


CRAFTS: Mapping[Language, Craft] = {
    "cpp": cpp,
    "cuda": cuda,
    "triton": triton,
    "python": python,
}
