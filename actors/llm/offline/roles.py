"""Whose prompt is this? A served model is told system and user message, not the role of who asks."""

from __future__ import annotations

import re

from actors.llm.base import Role

_HEADING = re.compile(r"^# (?P<words>[^\n]+)$", re.MULTILINE)
_PLANNER_ENDS_WITH = "What is wanted"


def role_of(prompt: str) -> Role:
    """Tell by the prompt's last heading, which says what to answer; what quotes code and trees comes before it."""
    headings = _HEADING.findall(prompt)
    return "planner" if headings and headings[-1] == _PLANNER_ENDS_WITH else "coder"
