"""Where an element of a tensor is found, as an expression over the dimensions of what uses it.

Views (permuted, split, merged, repeated, sliced dimensions) are such expressions and never copies. A term is
`(dim // div % mod) * scale`: one digit of a dimension in a mixed radix, times a stride.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from actors.llm.offline.graph import NoRuleError


class Term(msgspec.Struct, frozen=True, order=True):
    """`(dim // div % mod) * scale`; `scale` is not 0 and `mod` is larger than 1."""

    dim: int
    div: int
    mod: int
    scale: int


class Index(msgspec.Struct, frozen=True):
    """A sum of terms and an offset."""

    offset: int = 0
    terms: tuple[Term, ...] = ()


def whole(dim: int, size: int) -> Index:
    """Return the position along a dimension."""
    return Index(0, (Term(dim, 1, size, 1),)) if size > 1 else Index()


def combined(indices: Iterable[Index], strides: Iterable[int]) -> Index:
    """Return the sum of `indices`, each times its stride."""
    offset = 0
    terms: list[Term] = []
    for index, stride in zip(indices, strides, strict=True):
        offset += index.offset * stride
        terms += [Term(term.dim, term.div, term.mod, term.scale * stride) for term in index.terms if stride]
    return Index(offset, _merged(terms))


def part(index: Index, div: int, mod: int) -> Index:
    """Return `index // div % mod`.

    Raises:
        NoRuleError: the digits of the index do not end there.
    """
    if mod == 1:
        return Index()
    if index.offset or any(term.scale < 0 for term in index.terms):
        if div == 1 and index.offset >= 0 and _largest(index) < mod and all(term.scale > 0 for term in index.terms):
            return index
        raise NoRuleError("a slice of a dimension that is split or merged afterwards")
    digits = sorted(_split(_split(index.terms, div), div * mod), key=lambda term: term.scale)
    reach = 0
    for term in digits:
        if term.scale <= reach:
            raise NoRuleError("dimensions that overlap when they are split or merged")
        reach += term.scale * (term.mod - 1)
    kept = [term for term in digits if div <= term.scale < div * mod]
    return Index(0, _merged(Term(term.dim, term.div, term.mod, term.scale // div) for term in kept))


def substituted(index: Index, given: Sequence[Index]) -> Index:
    """Return `index` with each dimension replaced by an expression over other dimensions.

    Raises:
        NoRuleError: a digit is asked for that the replacement does not have.
    """
    parts = [part(given[term.dim], term.div, term.mod) for term in index.terms]
    found = combined(parts, [term.scale for term in index.terms])
    return Index(found.offset + index.offset, found.terms)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major tensor."""
    return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))


def _largest(index: Index) -> int:
    return index.offset + sum(term.scale * (term.mod - 1) for term in index.terms)


def _split(terms: Iterable[Term], place: int) -> Iterator[Term]:
    """Cut the terms whose digits lie on both sides of a place."""
    for term in terms:
        low = place // term.scale
        if not term.scale < place < term.scale * term.mod:
            yield term
            continue
        if place % term.scale or term.mod % low:
            raise NoRuleError("dimensions that are split or merged at sizes that do not divide them")
        yield Term(term.dim, term.div, low, term.scale)
        yield Term(term.dim, term.div * low, term.mod // low, place)


def _merged(terms: Iterable[Term]) -> tuple[Term, ...]:
    """Join neighbouring digits of a dimension whose strides fit, and drop digits that are always 0."""
    found: list[Term] = []
    for term in sorted(term for term in terms if term.mod > 1):
        last = found[-1] if found else None
        if (
            last is not None
            and last.dim == term.dim
            and term.div == last.div * last.mod
            and term.scale == last.scale * last.mod
        ):
            found[-1] = Term(last.dim, last.div, last.mod * term.mod, last.scale)
        elif last is not None and (last.dim, last.div, last.mod) == (term.dim, term.div, term.mod):
            found[-1] = Term(last.dim, last.div, last.mod, last.scale + term.scale)
        else:
            found.append(term)
    return tuple(term for term in found if term.scale)
