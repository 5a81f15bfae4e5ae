"""What changed between two programs, as a model is told it: files, and how many lines came and went."""

from __future__ import annotations

from collections import Counter

from messages.tasks import Candidate

_FILES_SHOWN = 4
_KEPT = 4096
_known: dict[tuple[str, str], str] = {}
"""By the ids of both: what was told once is told again in every later prompt."""


def diff_line(before: Candidate, after: Candidate) -> str:
    """Return in one line which files changed and by how many lines; a line that only moved does not count."""
    key = (before.candidate_id, after.candidate_id)
    if key not in _known:
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = _line(before, after)
    return _known[key]


def _line(before: Candidate, after: Candidate) -> str:
    old, new = ({file.path: file.text for file in candidate.files} for candidate in (before, after))
    parts = [_file(path, old.get(path), new.get(path)) for path in sorted(old | new) if old.get(path) != new.get(path)]
    left_out = len(parts) - _FILES_SHOWN
    more = [f"{left_out} more files"] if left_out > 0 else []
    return ", ".join([*parts[:_FILES_SHOWN], *more]) or "nothing"


def _file(path: str, before: str | None, after: str | None) -> str:
    old, new = (Counter((text or "").splitlines()) for text in (before, after))
    counts = f"+{(new - old).total()} -{(old - new).total()} lines"
    what = " (new)" if before is None else " (gone)" if after is None else f" of {new.total()}"
    return f"{path} {counts}{what}"
