"""Languages that candidates are written in. Siblings: each has the same files and the same functions."""

from __future__ import annotations

from evaluators.languages.base import LanguageSupport
from evaluators.languages.cpp import CPP
from evaluators.languages.cuda import CUDA
from evaluators.languages.python import PYTHON, PYTHON_GPU
from evaluators.languages.triton import TRITON, TRITON_GPU
from messages.base import ConfigError, Language
from messages.tasks import Platform

LANGUAGES: dict[tuple[Language, Platform], LanguageSupport] = {
    ("cpp", "cpu"): CPP,
    ("triton", "cpu"): TRITON,
    ("python", "cpu"): PYTHON,
    ("cuda", "cuda"): CUDA,
    ("triton", "cuda"): TRITON_GPU,
    ("python", "cuda"): PYTHON_GPU,
}


def support_of(language: Language, platform: Platform = "cpu") -> LanguageSupport:
    """Return what builds and describes candidates of this language on a platform.

    Raises:
        ConfigError: this release cannot.
    """
    try:
        return LANGUAGES[language, platform]
    except KeyError:
        there = ", ".join(known for known, on in LANGUAGES if on == platform)
        elsewhere = ", or a GPU: --device cuda:0" if (language, "cuda") in LANGUAGES else ""
        raise ConfigError(
            f"language {language!r} is not supported on {platform}; use one of: {there}{elsewhere}"
        ) from None
