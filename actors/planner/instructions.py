"""What people told the models, as prompts show it: the newest whole, older ones as far as there is room."""

from __future__ import annotations

from collections.abc import Sequence

from actors.planner.core.state import Instruction, SearchState
from messages.steering import Audience

MAX_SHOWN_CHARS = 8000
"""Of all instructions in one prompt, but for the newest, which is always shown whole."""


def told(state: SearchState, audience: Audience) -> list[Instruction]:
    """Return the instructions that the planner's or the coders' model is given, oldest first."""
    meant = [said for said in state.instructions if said.to in (audience, "both")]
    room, first = MAX_SHOWN_CHARS, len(meant)
    while first > 0 and (first == len(meant) or len(meant[first - 1].text) <= room):
        first -= 1
        room -= len(meant[first].text)
    return meant[first:]


def instruction_lines(texts: Sequence[str]) -> str:
    """Write instructions as the items of a list: further lines of one are indented, and pass for no heading."""
    return "\n".join("- " + text.replace("\n", "\n  ") for text in texts)
