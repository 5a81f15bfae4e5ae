"""The original K-Search's command line, understood by `ksearch run`: each flag does its job, or is refused by name.

A flag is translated to ours before the words are parsed, so `--help` shows ours only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from evaluators.tasks import is_bundled
from ksearch_async.cli.original_flags import FLAGS, AtMost, OriginalFlag, Refused, Renamed, Spelled, TaskPart
from ksearch_async.cli.original_tasks import number_of, task_words
from ksearch_async.refusals import refusal

_BY_NAME = {flag.name: flag for flag in FLAGS}


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """The words of `ksearch run` in our own flags."""

    tokens: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What is said of flags that change nothing here."""


def translated(tokens: Sequence[str], environment: Mapping[str, str]) -> Translation:
    """Put the original's flags into ours; words that are not the original's stay as they are.

    Args:
        tokens: what follows `ksearch run`.
        environment: where `DATASET_ROOT` is looked for.

    Raises:
        ConfigError: a flag that has no counterpart, with what to use instead; a value that is missing or wrong.
    """
    waiting, ours, notes = deque(tokens), list[str](), list[str]()
    task: dict[str, str] = {}
    while waiting:
        token = waiting.popleft()
        name, equals, value = token.removeprefix("--").partition("=")
        flag = _BY_NAME.get(name) if token.startswith("--") else None
        if flag is None:
            ours.append(token)
            continue
        given = _given(flag, value if equals else None, waiting)
        if isinstance(flag.meaning, TaskPart):
            task[name] = given
        elif flag.met:
            notes.append(_met(flag, given))
        else:
            ours += _in_ours(flag, given)
    return Translation(tokens=(*task_words(task, environment), *ours), notes=tuple(notes))


def _given(flag: OriginalFlag, inline: str | None, waiting: deque[str]) -> str:
    """Return the flag's value, as it was given behind `=` or in the next word; none for a switch."""
    if isinstance(flag.meaning, Refused):
        raise refusal(f"--{flag.name}: {flag.said}", flag.meaning.instead)
    if flag.is_switch:
        if inline is not None:
            raise refusal(f"--{flag.name} takes no value")
        return ""
    if inline is not None:
        return inline
    if flag.name == "world-model" and not (waiting and _could_be_a_mode(waiting[0])):
        return "evolving"  # the original's flag has no value
    if not waiting or waiting[0].startswith("--"):
        raise refusal(f"--{flag.name} needs a value")
    given = [waiting.popleft()]
    while flag.name == "feedback-workloads" and waiting and not waiting[0].startswith("-"):
        given.append(waiting.popleft())
    return ",".join(given)


def _could_be_a_mode(word: str) -> bool:
    """Say so unless it is an option or a task: a misspelt mode is to be refused as one."""
    return not (word.startswith("-") or word.endswith(".py") or "/" in word or is_bundled(word))


def _in_ours(flag: OriginalFlag, given: str) -> tuple[str, ...]:
    if isinstance(flag.meaning, Spelled):
        return flag.meaning.words
    name = flag.meaning.ours if isinstance(flag.meaning, Renamed) else flag.name
    return f"--{name}", given


def _met(flag: OriginalFlag, given: str) -> str:
    """Return what is said of a flag that asks for what is always done."""
    if isinstance(flag.meaning, AtMost) and number_of(flag.name, given) > flag.meaning.limit:
        raise refusal(f"--{flag.name}: {flag.said}", f"leave it out, or give at most {flag.meaning.limit}")
    return f"note: --{flag.name}: {flag.said}"


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise refusal(f"--{name}: expected a whole number, not {text!r}")
    return int(text)
