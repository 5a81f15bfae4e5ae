"""Which one error people are told of, where a task group ended with several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from messages.errors import KsearchError


@contextmanager
def single_error() -> Iterator[None]:
    """Raise what ended a task group in here as itself: callers catch a `KsearchError`, not a group of them."""
    try:
        yield
    except BaseExceptionGroup as group:
        cause = cause_of(group)
        if cause is group:
            raise
        raise cause from None


def cause_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what a person is told of the errors in a group: a bug before all else, as the whole group.

    One error is told as itself. Of several `KsearchError`s the first is, with the others as notes.
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
