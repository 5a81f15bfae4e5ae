"""Leaves an endpoint's key out of what the endpoint says: answers and errors are shown, and kept in the journal.

- `masked(text: str, key: str) -> str`: of errors
- `masked_answer(text: str, key: str) -> str`: of what a model wrote

A key that is shorter than any that is worth something is left alone: `x`, `key` and `EMPTY` are what endpoints are
given that want none, and kernels, plans and errors are full of such words.
"""

from __future__ import annotations

SHORTEST = 6
"""Characters of a key that is looked for in errors."""
_SHORTEST_IN_ANSWERS = 16
"""Of one that is looked for in answers, which are programs: `kernel` must stay. Providers' keys are longer."""
HIDDEN = "***"


def masked(text: str, key: str) -> str:
    """Return an error with `***` for a key."""
    return text.replace(key, HIDDEN) if len(key) >= SHORTEST else text


def masked_answer(text: str, key: str) -> str:
    """Return an answer with `***` for a key."""
    return text.replace(key, HIDDEN) if len(key) >= _SHORTEST_IN_ANSWERS else text
