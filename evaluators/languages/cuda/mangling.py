"""Names of kernels as people wrote them, from the symbols of the Itanium C++ ABI. Only what kernels' names need.

A candidate chooses its symbols: so this is plain Python over a bounded text, no library's demangler in our process.
"""

from __future__ import annotations

import re

_MAX_CHARACTERS = 512
_LENGTH = re.compile(r"(\d{1,3})")
_LITERAL = re.compile(r"L([bijlmstxy])(n?)(\d{1,20})E")
_BUILTIN = {
    "f": "float",
    "d": "double",
    "i": "int",
    "j": "unsigned",
    "l": "long",
    "m": "unsigned long",
    "b": "bool",
    "c": "char",
    "h": "unsigned char",
    "s": "short",
    "t": "unsigned short",
    "x": "long long",
    "y": "unsigned long long",
}
_ANONYMOUS = "_GLOBAL__N_"


def readable(symbol: str) -> str:
    """Return `space::kernel<256, true, float>` for a symbol; the symbol itself if it is of another kind."""
    if not symbol.startswith("_Z") or len(symbol) > _MAX_CHARACTERS:
        return symbol
    at = 2
    nested = symbol[at : at + 1] == "N"
    at += nested
    parts: list[str] = []
    while (found := _identifier(symbol, at)) is not None:
        part, at = found
        arguments, at = _arguments(symbol, at)
        if not part.startswith(_ANONYMOUS):
            parts.append(part + arguments)
        if not nested:
            break
    return "::".join(parts) or symbol


def _identifier(symbol: str, at: int) -> tuple[str, int] | None:
    """Return the identifier at a place and where it ends; None if there is none."""
    at += symbol[at : at + 1] == "L"  # internal linkage
    match = _LENGTH.match(symbol, at)
    if match is None:
        return None
    end = match.end() + int(match[1])
    return (symbol[match.end() : end], end) if end <= len(symbol) else None


def _arguments(symbol: str, at: int) -> tuple[str, int]:
    if symbol[at : at + 1] != "I":
        return "", at
    at += 1
    shown: list[str] = []
    while at < len(symbol) and symbol[at] != "E":
        literal = _LITERAL.match(symbol, at)
        named = _identifier(symbol, at)
        if literal is not None:
            shown.append(_value(literal))
            at = literal.end()
        elif symbol[at] in _BUILTIN:
            shown.append(_BUILTIN[symbol[at]])
            at += 1
        elif named is not None:
            shown.append(named[0])
            at = named[1]
        else:
            return f"<{', '.join((*shown, '…'))}>", len(symbol)
    return f"<{', '.join(shown)}>", at + 1


def _value(literal: re.Match[str]) -> str:
    kind, minus, digits = literal.groups()
    if kind == "b":
        return "true" if digits == "1" else "false"
    return ("-" if minus else "") + digits
