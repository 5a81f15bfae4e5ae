"""What this host builds for.

- `probe_target(language: Language, device: str = "cpu") -> Target`, raises EvaluatorError (permanent), ConfigError
- `check_target(own: Target, asked: Target) -> None`, raises EvaluatorError (permanent)
"""

from __future__ import annotations

from evaluators.devices import platform_of
from evaluators.languages import support_of
from messages.base import Language
from messages.errors import EvaluatorError
from messages.tasks import Target


def probe_target(language: Language, device: str = "cpu") -> Target:
    """Say what candidates of this language are built for here. Runs the compiler once (some 10 ms).

    Args:
        language: of the candidates.
        device: `cpu`, or `cuda:0`, `cuda:1`, ….

    Raises:
        EvaluatorError: there is no usable toolchain; the text says what to install.
        ConfigError: this release does not support the language.
    """
    return support_of(language, platform_of(device)).probe_target(device)


def check_target(own: Target, asked: Target) -> None:
    """Accept an artifact that was built for a host like this one.

    Raises:
        EvaluatorError: it was not.
    """
    if own.fingerprint != asked.fingerprint:
        raise EvaluatorError(
            f"built for {_say(asked)}, but this host is {_say(own)}: evaluate it where it was built for",
            permanent=True,
        )


def _say(target: Target) -> str:
    march = f" -march={target.march}" if target.march else ""
    return f"{target.arch}{march} by {target.toolchain!r}"
