"""How bad input is refused: one line that says what is wrong, and a hint that says what to change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from difflib import get_close_matches

from messages.errors import ConfigError


def refusal(text: str, hint: str = "") -> ConfigError:
    """Return a `ConfigError` whose hint (an exception note) the command line prints on a line of its own."""
    error = ConfigError(text)
    if hint:
        error.add_note(hint)
    return error


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean 'x'?` for the known word nearest to `word`, or `otherwise` if none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else otherwise


def refuse_event_loop(called: str, instead: str) -> None:
    """Refuse a call that starts an event loop where one runs already.

    Args:
        called: the call, as people write it.
        instead: what they can write there.

    Raises:
        ConfigError: one runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise refusal(f"{called} cannot be used in a running event loop", f"write: {instead}")
