"""Secrets that this process was given, and the last defence against showing one: lines are searched for them.

The first defence is that nobody puts a secret into a line; see `actors.llm.tries` and `ksearch_async.access`.
"""

from __future__ import annotations

import json
import re

from actors.llm.masking import HIDDEN, SHORTEST

_SEED = re.compile(r"\bS[ACNOUX][A-Z2-7]{56}\b")
"""An nkey's seed, whoever's it is: a type letter behind an S, base 32."""

_known: set[str] = set()


def keep_secret(*secrets: str | None) -> None:
    """Have these texts never shown in a log line from now on, whoever writes it, quoted or not.

    Nothing and short ones are ignored: lines would be full of holes, which tell more than they hide.
    """
    for secret in secrets:
        if secret is not None and len(secret) >= SHORTEST:
            for text in (secret, repr(secret)[1:-1], repr(secret.encode())[2:-1]):
                _known.update((text, json.dumps(text)[1:-1]))


def without_secrets(line: str) -> str:
    """Return a line with `***` where secrets were."""
    for secret in sorted(_known, key=len, reverse=True):
        line = line.replace(secret, HIDDEN)
    return _SEED.sub(HIDDEN, line)
