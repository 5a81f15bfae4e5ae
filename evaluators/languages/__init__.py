"""Languages of candidates: a folder for each name in `messages.base.Language`, with its declaration as `SPEC`."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import get_args

from evaluators.languages.base import LanguageSpec, LanguageSupport
from messages.base import ConfigError, Language
from messages.tasks import Platform

SPECS: Mapping[Language, LanguageSpec] = {
    language: import_module(f"{__name__}.{language}").SPEC for language in get_args(Language)
}


def languages_on(platform: Platform) -> tuple[Language, ...]:
    """Return the languages that a platform has."""
    return tuple(language for language, spec in SPECS.items() if platform in spec.supports)


def support_of(language: Language, platform: Platform = "cpu") -> LanguageSupport:
    """Return what builds and describes candidates of this language on a platform.

    Raises:
        ConfigError: this release cannot.
    """
    spec = SPECS.get(language)
    if spec is not None and platform in spec.supports:
        return spec.supports[platform]
    elsewhere = ", or a GPU: --device cuda:0" if spec is not None and "cuda" in spec.supports else ""
    there = ", ".join(languages_on(platform))
    raise ConfigError(f"language {language!r} is not supported on {platform}; use one of: {there}{elsewhere}")
