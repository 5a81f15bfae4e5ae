"""Errors for people: refusals of bad input with a hint, and the one error to show from an exception group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from messages.base import ConfigError, KsearchError


@contextmanager
def single_error() -> Iterator[None]:
    """Raise a single error instead of the task group's exception group, so that callers can catch a `KsearchError`."""
    try:
        yield
    except BaseExceptionGroup as group:
        cause = cause_of(group)
        if cause is group:
            raise
        raise cause from None


def cause_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error of a group to show to people; if one is a bug, the whole group.

    A single error stands for the group. Of several `KsearchError`s it is the first, with the others as notes.
    """
    leaves = list(_leaves(group))
    for kind in (BrokenPipeError, KeyboardInterrupt):
        for leaf in leaves:
            if isinstance(leaf, kind):
                return leaf
    first, *others = leaves
    if others and not all(isinstance(leaf, KsearchError) for leaf in leaves):
        return group
    for other in others:
        if str(other) != str(first):
            first.add_note(f"also: {other}")
    return first


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def refusal(text: str, hint: str = "") -> ConfigError:
    """Return a `ConfigError` with a hint (an exception note), which the command line prints on its own line."""
    error = ConfigError(text)
    if hint:
        error.add_note(hint)
    return error


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return `did you mean 'x'?` for the known word nearest to `word`, or `otherwise` if none is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else otherwise


def refuse_event_loop(called: str, instead: str) -> None:
    """Refuse a call that starts an event loop if one already runs.

    Args:
        called: the call, as people write it.
        instead: the call to use instead.

    Raises:
        ConfigError: one runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise refusal(f"{called} cannot be used in a running event loop", f"write: {instead}")
