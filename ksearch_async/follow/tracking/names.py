"""Names of the experiment trackers. Imports no tracker: every command that reads settings loads this."""

from __future__ import annotations

from collections.abc import Mapping

from ksearch_async.errors import refusal, suggestion

MODULES: Mapping[str, str] = {
    "wandb": "ksearch_async.follow.tracking.wandb",
    "mlflow": "ksearch_async.follow.tracking.mlflow",
}
"""Each has a class `Tracked`, a `Tracker`; its package is the extra of the same name."""


def tracker_names(words: str) -> tuple[str, ...]:
    """Return which trackers are meant by names with commas; each once.

    Raises:
        ConfigError: one is not known.
    """
    names = tuple(dict.fromkeys(name.strip() for name in words.split(",") if name.strip()))
    for name in names:
        if name not in MODULES:
            known = f"known are {' and '.join(MODULES)}; several with commas"
            raise refusal(f"no tracker {name!r}", suggestion(name, MODULES, known))
    return names
