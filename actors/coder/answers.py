"""A coder's answer: whole files, or search/replace blocks against the code in the job."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from actors.coder.edits import BLOCK, Found, apply_edits, find_edits
from actors.coder.parse import Parsed, UnusableError, check_files, check_whole, parse_files, read_blocks
from messages.commands import WriteCandidate
from messages.tasks import Candidate, SourceFile

EDITS_FROM_CHARS = 12_000
"""With the format `auto`, longer code is edited with blocks; models rewrite shorter programs at little cost."""


MAX_REFUSED_BLOCKS = 2
"""Consecutive answers with unmatched blocks after which the whole program is requested."""


class Shown(msgspec.Struct, frozen=True):
    """Code that a job shows to the model."""

    name: str
    """Name as in the code's heading."""
    candidate: Candidate


def edited(job: WriteCandidate) -> Shown | None:
    """Return the code that search/replace blocks apply to: the failed code in debug mode, else the base."""
    return next(_shown(job), None)


def wants_edits(job: WriteCandidate) -> bool:
    """Return True if the answer should consist of search/replace blocks."""
    code = edited(job)
    if code is None or job.edit_format == "whole" or blocks_failed(job):
        return False
    length = sum(len(file.text) for file in code.candidate.files)
    return job.edit_format == "search-replace" or length > EDITS_FROM_CHARS


def blocks_failed(job: WriteCandidate) -> bool:
    """Return True if the last `MAX_REFUSED_BLOCKS` answers all had blocks that did not match."""
    latest = job.history[-MAX_REFUSED_BLOCKS:]
    return len(latest) == MAX_REFUSED_BLOCKS and all(
        brief.fate == "unusable" and BLOCK in brief.outcome for brief in latest
    )


def read_candidate(job: WriteCandidate, text: str, *, is_complete: bool = False) -> Parsed:
    """Return the candidate in an answer of either format; `is_complete`: the model ended the answer itself."""
    try:
        found = find_edits(text)
    except UnusableError as error:
        return Parsed(None, str(error))
    if not found.edits:
        return parse_files(text, language=job.language, entry_point=job.task.entry_point, is_complete=is_complete)
    return _edited(job, found, is_complete=is_complete)


def _edited(job: WriteCandidate, found: Found, *, is_complete: bool) -> Parsed:
    complaint = "there is no code yet that search/replace blocks could change: return complete files"
    for number, shown in enumerate(_shown(job)):
        try:
            files, notes = apply_edits(found.edits, _with_new(shown.candidate, found, is_complete=is_complete))
            _check(files, job.task.entry_point)
        except UnusableError as error:
            complaint = complaint if number else f"against {shown.name}: {error}"
            continue
        if number:
            notes = (f"the blocks were applied to {shown.name}: only there they fit", *notes)
        return Parsed(msgspec.structs.replace(shown.candidate, files=files), "", notes)
    return Parsed(None, complaint)


def _shown(job: WriteCandidate) -> Iterator[Shown]:
    latest = Shown("your latest attempt", job.current) if job.current else None
    base = Shown("the base code", job.base) if job.base else None
    order = (latest, base) if job.mode == "debug" else (base, latest)
    yield from (shown for shown in order if shown is not None)


def _with_new(candidate: Candidate, found: Found, *, is_complete: bool) -> tuple[SourceFile, ...]:
    """Return the files to edit, together with the named whole files that the answer gives besides its blocks."""
    whole = {
        block.path: SourceFile(path=block.path, text=block.text)
        for block in read_blocks(found.rest, is_complete=is_complete)
        if block.path is not None and block.text.strip()
    }
    kept = [whole.pop(file.path, file) for file in candidate.files]
    return (*kept, *whole.values())


def _check(files: tuple[SourceFile, ...], entry_point: str) -> None:
    check_files(files)
    check_whole(files)
    if entry_point and not any(re.search(rf"\b{re.escape(entry_point)}\b", file.text) for file in files):
        raise UnusableError(f"the entry point {entry_point!r} is gone after the blocks")
