"""How tries of a model call failed, and how that is said in one line."""

from __future__ import annotations

from collections import Counter

from messages.base import Message


class EndpointFault(Message, frozen=True, kw_only=True):
    """A try of a model call that failed. The call went on with another try, or was given up."""

    kind: str
    """`rate_limited`, `server_error`, `refused`, `timed_out`, `unreachable`, `broken_off`, `too_long`, `malformed`."""
    status: int | None = None
    """HTTP status, where there was an answer."""
    detail: str = ""
    """What the endpoint or the connection said, shortened."""
    elapsed_s: float = 0.0
    """How long the try took."""
    retry_after_s: float | None = None
    """How long the endpoint asked to wait before the next one."""

    @property
    def words(self) -> str:
        """The kind, and the status where it says more: `server_error (HTTP 503)`."""
        return f"{self.kind} (HTTP {self.status})" if self.status is not None else self.kind


def fault_words(faults: tuple[EndpointFault, ...]) -> str:
    """Count faults by kind, most frequent first: `2 rate_limited (HTTP 429), 1 broken_off`."""
    counted = Counter(fault.words for fault in faults)
    return ", ".join(f"{count} {words}" for words, count in counted.most_common())
