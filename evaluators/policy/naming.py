"""What a task may allow by name."""

from __future__ import annotations

import difflib

from evaluators.policy.operators import FAMILIES
from evaluators.policy.symbols import LIBRARIES
from messages.errors import ConfigError


def parse_allowed(text: str) -> tuple[str, ...]:
    """Return the names in a text, separated by commas: operators (`aten::mm`), their families, libraries.

    Raises:
        ConfigError: one is no such name.
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = (*FAMILIES, *LIBRARIES)
    for name in names:
        if name.startswith("aten::") or name in known:
            continue
        close = difflib.get_close_matches(name.removeprefix("lib"), known, n=1)
        suggestion = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(
            f"{name!r} is nothing that can be allowed{suggestion} (operators: aten::NAME; families of operators: "
            f"{', '.join(FAMILIES)}; libraries: {', '.join(LIBRARIES)})"
        )
    return names
