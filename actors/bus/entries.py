"""Key-value entries as a state machine: revisions, and times to live by the caller's clock."""

from __future__ import annotations

import re

from actors.bus.base import MAX_JOB_BYTES, ConflictError, Entry
from messages.base import BusError

_KEY = re.compile(r"[-/_=.a-zA-Z0-9]+")


class Entries:
    """The entries of one bus. Revisions count the writes of all of them, as those of a JetStream bucket do."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Entry, float | None]] = {}
        self._revision = 0

    def get(self, key: str, now: float) -> Entry | None:
        """Return an entry that is there."""
        kept = self._entries.get(key)
        if kept is None:
            return None
        entry, until = kept
        if until is not None and until <= now:
            del self._entries[key]
            return None
        return entry

    def under(self, prefix: str, now: float) -> dict[str, Entry]:
        """Return the entries whose keys begin like this, in the order of the keys."""
        keys = sorted(key for key in self._entries if key.startswith(prefix))
        return {key: entry for key in keys if (entry := self.get(key, now)) is not None}

    def put(self, key: str, value: bytes, revision: int, ttl_s: int | None, now: float) -> int:
        """Write an entry.

        Raises:
            ConflictError: it has another revision.
            BusError: that is no key, or too large.
        """
        check_entry(key, value, ttl_s)
        self._check_revision(key, revision, now)
        self._revision += 1
        entry = Entry(value=value, revision=self._revision)
        self._entries[key] = (entry, None if ttl_s is None else now + ttl_s)
        return self._revision

    def delete(self, key: str, revision: int, now: float) -> None:
        """Remove an entry.

        Raises:
            ConflictError: it has another revision.
        """
        self._check_revision(key, revision, now)
        self._entries.pop(key, None)

    def _check_revision(self, key: str, revision: int, now: float) -> None:
        entry = self.get(key, now)
        last = 0 if entry is None else entry.revision
        if last != revision:
            raise ConflictError(f"entry {key!r} has revision {last}, not {revision}: somebody else wrote first")


def check_entry(key: str, value: bytes, ttl_s: int | None) -> None:
    """Accept what every bus can keep.

    Raises:
        BusError: says what is wrong.
    """
    if _KEY.fullmatch(key) is None or key.startswith(".") or key.endswith(".") or ".." in key:
        raise BusError(f"{key!r} is no key: use letters, digits and any of -/_=, and dots between tokens")
    if len(value) > MAX_JOB_BYTES:
        raise BusError(f"entry {key!r} has {len(value)} bytes; at most {MAX_JOB_BYTES} may be put")
    if ttl_s is not None and ttl_s < 1:
        raise BusError(f"entry {key!r} cannot live for {ttl_s} s: 1 s at least")
