"""Names of trackers and notices. Light: every command that reads settings loads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from ksearch_async.errors import refusal, suggestion

MODULES: Mapping[str, str] = {
    "wandb": "ksearch_async.follow.tracking.wandb",
    "mlflow": "ksearch_async.follow.tracking.mlflow",
}
"""Module of each tracker, with a class `Tracked` (a `Tracker`); its package is the optional dependency of the same
name."""


def tracker_names(words: str) -> tuple[str, ...]:
    """Return the trackers named in a list with commas, each once.

    Raises:
        ConfigError: one is not known.
    """
    names = tuple(dict.fromkeys(name.strip() for name in words.split(",") if name.strip()))
    for name in names:
        if name not in MODULES:
            known = f"known are {' and '.join(MODULES)}; several with commas"
            raise refusal(f"no tracker {name!r}", suggestion(name, MODULES, known))
    return names


NoticeKind: TypeAlias = Literal["best", "finished", "trouble"]

URL_VARIABLE = "KSEARCH_NOTIFY"
SECRET_VARIABLE = "KSEARCH_NOTIFY_SECRET"  # noqa: S105 - a variable's name


def check_url(url: str) -> None:
    """Check the address of a webhook. Errors do not repeat it: it may contain a secret.

    Raises:
        ConfigError: it is not an address, or contains a name and a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal("a webhook's address begins with http:// or https://", "--notify https://HOST/PATH")
    if "@" in parts.netloc:
        raise refusal(
            "a webhook's address must not hold a password: it is saved with the run",
            f"an address that is secret goes into {URL_VARIABLE}, a signature's secret into {SECRET_VARIABLE}",
        )


def kinds_of(words: str) -> frozenset[str]:
    """Return the kinds of notices named in a list with commas.

    Raises:
        ConfigError: one is not known.
    """
    known = get_args(NoticeKind)
    kinds = frozenset(word.strip() for word in words.split(",") if word.strip())
    for kind in sorted(kinds - set(known)):
        raise refusal(f"no notices of {kind!r}", suggestion(kind, known, f"known are {', '.join(known)}"))
    return kinds
