"""Tokens by rule of thumb, where no endpoint counts them. Good to about a third; budgets of prompts need no more."""

from __future__ import annotations

from actors.llm.base import Request
from messages.base import Usage

CHARS_PER_TOKEN = 4
"""English prose has 4 to 5 characters per token, code 3 to 4."""


def estimated_tokens(text: str) -> int:
    """Return about how many tokens `text` has; at least 1."""
    return max(1, len(text) // CHARS_PER_TOKEN)


def estimated_usage(request: Request, text: str) -> Usage:
    """Return what a call would cost at an endpoint: one call, tokens estimated, nothing cached."""
    return Usage(
        calls=1,
        prompt_tokens=estimated_tokens(request.system) + estimated_tokens(request.prompt),
        completion_tokens=estimated_tokens(text),
    )
