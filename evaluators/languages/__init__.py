"""Languages that candidates are written in. Siblings: each has the same files and the same functions.

- `support_of("cpp").probe_target()`: what this host builds for
- `support_of("cpp").plan_build(candidate, target)`: the compiler's command line
- `support_of("cpp").describe(tensors)`: the calling contract, as a coder is told it
"""

from __future__ import annotations

from evaluators.languages.base import LanguageSupport
from evaluators.languages.cpp import CPP
from evaluators.languages.triton import TRITON
from messages.base import Language
from messages.errors import ConfigError

LANGUAGES: dict[Language, LanguageSupport] = {"cpp": CPP, "triton": TRITON}


def support_of(language: Language) -> LanguageSupport:
    """Return what builds and describes candidates of this language.

    Raises:
        ConfigError: this release cannot.
    """
    try:
        return LANGUAGES[language]
    except KeyError:
        raise ConfigError(f"language {language!r} is not supported here; use one of: {', '.join(LANGUAGES)}") from None
